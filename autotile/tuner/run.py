"""The search: ask, build ahead, check, time, record; then prove the best and save it."""

from __future__ import annotations

import math
import time
import warnings
from collections import Counter
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from autotile import __version__
from autotile.codegen import template_digest
from autotile.errors import EnvironmentalError, KernelError, ToolchainMissing, VariantError
from autotile.measure import Trial, Variant, make_variant
from autotile.sampler import Strategy, derived_columns
from autotile.spec import Spec
from autotile.store import StoreWarning
from autotile.tuner.budget import Budget
from autotile.tuner.clock import Clock
from autotile.tuner.finals import FINALISTS, Crowned, Finalist, crown, distinct_best, of_trials
from autotile.tuner.pipeline import Outcome, Pipeline
from autotile.tuner.plan import known_records, make_plan
from autotile.tuner.result import SearchResult
from autotile.tuner.workshop import Workshop
from autotile.types import OK, Binary, Configuration, Problem, Record

TWIN = "same_binary_as"
"""The entry of a record's `extra` that names the configuration whose machine code, and so whose time, it shares."""


class ProblemSearch:
    """One problem's search: `run` it once. State lives here; each method is one of its steps."""

    def __init__(self, spec: Spec, problem: Problem, workshop: Workshop) -> None:
        self.spec, self.kernel, self.problem, self.workshop = spec, spec.kernel, problem, workshop
        self.device, self.builder, self.bench = workshop.device, workshop.builder, workshop.bench
        self.store, self.listener = workshop.store, workshop.listener
        self.clock = Clock()
        self.plan = make_plan(spec, problem, workshop)
        self.identity, self.space, self.points = self.plan.identity, self.plan.space, self.plan.points
        self.records: dict[int, Record] = dict(self.plan.known)
        self.new_trials = 0
        self.first: Record | None = None
        """The first variant that this run has timed."""
        self.timed: dict[tuple[str, object], Record] = {
            (r.binary_digest, r.launch): r for r in self.records.values() if r.ok and r.binary_digest
        }
        self.built: dict[int, tuple[Variant, Binary]] = {}
        self.strategy = Strategy(
            self.space,
            spec.search.sampler,
            spec.search.seed,
            self.plan.first_rows,
            goal=self.plan.goal,
            derived=derived_columns(self.kernel, problem, self.space, self.device.info)
            if spec.search.sampler == "model"
            else None,
            built=self.plan.built,
            jobs=self.builder.jobs,
            costs=not self.device.info.estimated or self.device.info.kind == "replay",
            storage=spec.search.storage,
            title=None if spec.search.storage is None else self._title(),
        )
        self.budget = Budget(spec.search, self.plan.goal)
        for row, record in self.records.items():
            self.strategy.replay(row, record)
            self.budget.count(record)

    # ---- the trials ----------------------------------------------------------------------------------------------

    def run(self) -> SearchResult:
        self.listener.started(
            self.kernel, self.problem, self.device.info, self.space, len(self.records), self.plan.goal
        )
        stopped_by = self._stop_reason()
        best = self._saved()
        uncrowned = self._best() is not None and not self.points and not self._crowned_among(best)
        if stopped_by is None or uncrowned:
            stopped_by, best = self._tried_and_crowned(stopped_by, best)
            self.bench.end()
        named = {name: self.records[row] for name, row in self.points.items() if row in self.records}
        return SearchResult(
            kernel=self.kernel,
            problem=self.problem,
            device=self.device.info,
            records=tuple(self.records.values()),
            new_trials=self.new_trials,
            best=self._best() if self.points else best,
            stopped_by=stopped_by,
            space_size=self.space.feasible,
            space_total=self.space.total,
            outcomes=Counter(record.outcome for record in self.records.values()),
            phases=self.clock.phases(),
            named=named,
        )

    def _tried_and_crowned(self, stopped_by: str | None, saved: Record | None) -> tuple[str, Record | None]:
        """The trials, unless there are none to make (`stopped_by` says why), and the finals."""
        if stopped_by is None:
            try:
                stopped_by = self._trials()
            except KeyboardInterrupt:  # another one, while the first was being obeyed
                return "interrupted", saved
        else:
            self._begin()
        if stopped_by in ("device_lost", "edited") or self.points:
            return stopped_by, saved
        return self._crowned(stopped_by, saved)

    def _begin(self) -> None:
        """Puts the problem's data on the device."""
        self.workshop.begin(self.kernel, self.problem)

    def _title(self) -> str:
        """The study's name in a storage: one a run, so that it holds just what this run knew and tried."""
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        return f"{self.kernel.name} {self.problem.label} on {self.device.info.name}, {now}"

    def _saved(self) -> Record | None:
        """The saved best of this problem, if it is of this identity; none after a run that was killed early."""
        saved = self.store.best(self.kernel.name, self.problem, self.identity.device)
        return saved if saved is not None and saved.identity == self.identity else None

    def _crowned_among(self, saved: Record | None) -> bool:
        """False after a run that was killed between its trials and its finals.

        The saved best may be of a search of another part of the space: then one that is on record here and faster was
        never in the finals.
        """
        if saved is None or of_trials(saved) < len(self.records):
            return False
        among = any(record.configuration == saved.configuration for record in self.records.values())
        return among or saved.time_ms <= self._best_ms()

    def _stop_reason(self) -> str | None:
        if self.points and len(self.records) >= self.plan.goal:
            return "points"
        if self.strategy.exhausted:
            return "exhausted"
        if len(self.records) >= self.plan.goal:
            return "trials"
        if self.budget.left_s(self.clock.elapsed_s) == 0:
            return "time"
        return None if self.points or self.budget.is_patient(self._expected_gain()) else "gain"

    def _expected_gain(self) -> float | None:
        """Asked for only where it decides: it is some work."""
        return self.strategy.expected_gain if self.budget.tries_patience else None

    def _trials(self) -> str:
        pipeline: Pipeline[tuple[Any, int]] = Pipeline(
            self.builder,
            self.bench,
            self._begin,
            lambda variant, binary: self.bench.trial(variant, binary, self._best_ms()),
            lambda variant, binary: (binary.digest, variant.launch) in self.timed,
        )
        interrupted = True
        try:
            reason = self._until_the_end(pipeline)
            interrupted = False
            return reason
        except KernelError:
            if not self._edited():
                raise
            return "edited"
        except EnvironmentalError as error:
            if not pipeline.ready or (self.bench.lost is None and not any(r.ok for r in self.records.values())):
                raise
            self.listener.note(f"no more can be measured: {error}")
            return "device_lost" if self.bench.lost is not None else "toolchain_lost"
        except KeyboardInterrupt:
            return "interrupted"
        finally:
            pipeline.close(abandon=interrupted)
            self.clock.idle_s += pipeline.idle_s
            self.clock.data_s += pipeline.prepare_s

    def _until_the_end(self, pipeline: Pipeline[tuple[Any, int]]) -> str:
        while True:
            reason = self._stop_reason()
            if reason is not None and (reason != "exhausted" or not len(pipeline)):
                for outcome in pipeline.last():  # what is measured already is worth keeping
                    self._finish(outcome)
                return reason
            if self._edited():
                return "edited"
            while pipeline.wants_more and not self.strategy.exhausted:
                if len(self.records) + len(pipeline) >= self.plan.goal:
                    break
                self._start(pipeline)
            for outcome in pipeline.next(self.budget.left_s(self.clock.elapsed_s)):
                self._finish(outcome)
                if self.bench.lost:
                    return "device_lost"

    def _edited(self) -> bool:
        """Whether the kernel's folder is another one than when the search began: results would be filed wrongly."""
        try:
            edited = template_digest(self.kernel) != self.identity.template
        except (KernelError, OSError):  # a file that is being written, or replaced
            edited = True
        if edited:
            self.listener.note(f"{self.kernel.folder} was edited during the search, which ends here: run it again")
        return edited

    def _start(self, pipeline: Pipeline[tuple[Any, int]]) -> None:
        begun = time.perf_counter()
        trial, row = self.strategy.ask()
        configuration = self.space.configuration(row)
        self.clock.ask_s += time.perf_counter() - begun
        try:
            variant = make_variant(self.kernel, self.problem, configuration)
        except VariantError as error:
            self._keep(trial, row, self._record(configuration, error.outcome, str(error)))
            return
        pipeline.submit((trial, row), variant)

    def _finish(self, outcome: Outcome[tuple[Any, int]]) -> None:
        """Puts what came of a variant on record."""
        (trial, row), variant, binary = outcome.key, outcome.variant, outcome.binary
        record = self._record(variant.configuration, OK, "", variant)
        if binary is not None:
            self.clock.build_s += 0.0 if binary.cached else binary.build_s
            record = _built(record, binary)
            self.built[row] = (variant, binary)
        if outcome.error is not None:
            error = outcome.error
            took_s = outcome.wall_s if error.cost_s is None else error.cost_s
            self.clock.check_s += took_s
            record = replace(record, outcome=error.outcome, message=str(error), check_s=took_s)
        elif outcome.trial is not None:
            self.clock.check_s += outcome.trial.check_s
            self.clock.measure_s += outcome.trial.measure_s
            self.clock.other_s += max(0.0, outcome.wall_s - outcome.trial.check_s - outcome.trial.measure_s)
            record = _measured(record, outcome.trial)
        else:
            assert binary is not None, "what is settled was built"
            record = _as_twin(record, self.timed[(binary.digest, variant.launch)])
        self._keep(trial, row, record)

    def _record(
        self, configuration: Configuration, outcome: str, message: str, variant: Variant | None = None
    ) -> Record:
        return Record(
            problem=self.problem,
            configuration=configuration,
            identity=self.identity,
            outcome=outcome,
            message=message,
            launch=variant.launch if variant else None,
            source_digest=variant.source.digest if variant else "",
            seed=self.spec.search.seed,
            created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            autotile_version=__version__,
        )

    def _keep(self, trial: Any, row: int, record: Record) -> None:
        self.store.append(record)
        self.records[row] = record
        self.new_trials += 1
        self.budget.count(record)
        if record.ok and self.first is None and not _is_twin(record):
            self.first = record
        if record.ok and record.binary_digest:
            self.timed.setdefault((record.binary_digest, record.launch), record)
        if record.ok and record is self._best() and self.workshop.tracer is not None and row in self.built:
            self.workshop.tracer.prepare([self.built[row][0]])  # it may well be the winner, and is traced then
        self.strategy.tell(trial, record)
        self.listener.tried(record, self._best(), len(self.records))

    def _best(self) -> Record | None:
        right = [record for record in self.records.values() if record.ok]
        return min(right, key=lambda record: record.time_ms, default=None)

    def _best_ms(self) -> float:
        best = self._best()
        return math.inf if best is None else best.time_ms

    # ---- the winner ----------------------------------------------------------------------------------------------

    def _crowned(self, stopped_by: str, saved: Record | None) -> tuple[str, Record | None]:
        """How the search ended, and its best. An interrupt skips the finals; another one, the proof as well."""
        try:
            if stopped_by != "interrupted":
                try:
                    return stopped_by, self._crown(interrupted=False)
                except KeyboardInterrupt:
                    stopped_by = "interrupted"
            if self._best() is not None:
                self.listener.note(
                    "stopping: the best so far is being proven; interrupt again to leave that to another run"
                )
            return stopped_by, self._crown(interrupted=True)
        except KeyboardInterrupt:
            if self._best_ms() < (math.inf if saved is None else saved.time_ms):
                self.listener.note(
                    f"a variant of {self._best_ms():.4g} ms is on record, unproven: the next run of the same command "
                    "proves it"
                )
            return "interrupted", saved
        except ToolchainMissing as error:
            if stopped_by != "toolchain_lost":
                raise
            self.listener.note(f"nothing could be proven: {error}")
            return stopped_by, saved

    def _crown(self, interrupted: bool) -> Record | None:
        """The finals; after an interrupt just the proof of the best so far."""
        begun = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", StoreWarning)  # what is damaged was said when the search began
            self._hear_of_others()
            crowned = self._finals(interrupted)
        for record in crowned.failed:
            row = self.space.row_of(record.configuration)
            assert row is not None, "a finalist outside the space"
            self.records[row] = record
        self.clock.finals_s += time.perf_counter() - begun
        return crowned.winner

    def _finals(self, interrupted: bool) -> Crowned:
        best = distinct_best(self.records.values(), 1 if interrupted else FINALISTS)
        return crown(
            [self._finalist(record) for record in best],
            self.workshop,
            self._measured_anew,
            len(self.records),
            retime=not interrupted,
            first=None if self.first is None or interrupted else self._finalist(self.first),
        )

    def _hear_of_others(self) -> None:
        """Takes in what other searches of the same problem have put on record meanwhile, so that all crown one best."""
        if self.workshop.fresh:
            return
        self.records = known_records(self.plan, self.store) | self.records

    def _measured_anew(self, stored: Record) -> bool:
        """With `fresh`, a saved best whose configuration this run has measured again says nothing any more."""
        return self.workshop.fresh and self.space.row_of(stored.configuration) in self.records

    def _finalist(self, record: Record) -> Finalist:
        """A record with its variant and binary; of an earlier run's, from the cache or built again."""
        row = self.space.row_of(record.configuration)
        assert row is not None, "a record outside the space"
        if row not in self.built:
            variant = make_variant(self.kernel, self.problem, record.configuration)
            self.built[row] = (variant, self.builder.build(variant.source))
        return Finalist(record, *self.built[row])


def _built(record: Record, binary: Binary) -> Record:
    return replace(
        record,
        binary_digest=binary.digest,
        registers=binary.registers,
        spill_bytes=binary.spill_bytes,
        static_shared_bytes=binary.static_shared_bytes,
        build_s=binary.build_s,
    )


def _measured(record: Record, trial: Trial) -> Record:
    return replace(
        record,
        measurement=trial.measurement,
        max_error=trial.max_error,
        check_s=trial.check_s,
        measure_s=trial.measure_s,
        extra=(*record.extra, *trial.notes),
    )


def _as_twin(record: Record, twin: Record) -> Record:
    """The machine code is the same as a variant's that was timed already: so is the result."""
    return replace(
        record,
        measurement=twin.measurement,
        max_error=twin.max_error,
        extra=(*twin.extra, (TWIN, twin.configuration.key)),
    )


def _is_twin(record: Record) -> bool:
    return any(name == TWIN for name, _ in record.extra)
