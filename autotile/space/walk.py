"""One group of parameters, enumerated a parameter at a time and in blocks, so that its size is no matter of memory.

The rows so far times the next domain are judged by the rules that can be settled then; what is left goes on. A rule
that rejects a partial row rejects every completion of it, and is credited with exactly that many. A block that has
grown is cut, and each part goes all the way before the next begins.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotile.errors import ConfigurationError
from autotile.space.numbering import Column, code_type
from autotile.space.plan import Stage
from autotile.space.verdicts import Verdicts


@dataclass(frozen=True)
class Limits:
    """`held_rows`: feasible configurations that are held; of more, a sample of `sample_rows` (at most a quarter of it).

    `looked_at`: combinations, partial ones included, that are judged before a count is given up, which is after some
    minutes. `block_rows`: partial rows that are judged at once; a few hundred bytes each.
    """

    held_rows: int = 4_000_000
    sample_rows: int = 1_000_000
    looked_at: int = 10_000_000_000
    block_rows: int = 2**18


class Rows:
    """Feasible rows as they come in: all of them, or, beyond the limit, a uniform sample in random order.

    The sample is of the rows whose random keys are least, so a row is in it or not whatever came before.
    """

    def __init__(self, limits: Limits, seed: Sequence[int]) -> None:
        self.count = 0
        self.limits = limits
        self._random = np.random.default_rng(list(seed))
        self._parts: list[Column] = []
        self._keys: list[Column] = []
        self._bar = 1.0

    def offer(self, count: int) -> Column | None:
        """Counts as many rows more; gives the indices of those that are to be added (None: all of them)."""
        held = 0 if self.sampled else self.count
        self.count += count
        if not self.sampled:
            return None
        if held:
            self._keys.append(self._random.random(held))
        keys = self._random.random(count)
        low = np.flatnonzero(keys < self._bar)
        self._keys.append(keys[low])
        return low

    def add(self, codes: Column) -> None:
        """Rows that were offered and wanted; `codes` is parameters × rows."""
        self._parts.append(codes)
        if self.sampled and sum(map(len, self._keys)) >= 2 * self.limits.sample_rows:
            self._thin()

    @property
    def sampled(self) -> bool:
        return self.count > self.limits.held_rows

    def _thin(self) -> None:
        """Keeps the rows of the least keys."""
        codes, keys = _joined(self._parts), np.concatenate(self._keys)
        most = self.limits.sample_rows
        least = np.argpartition(keys, most - 1)[:most]
        self._parts, self._keys, self._bar = [codes[:, least]], [keys[least]], float(keys[least].max())

    def table(self) -> Column:
        """Parameters × rows: in the order of coming, or a sample in random order."""
        codes = _joined(self._parts)
        if not self.sampled:
            return codes
        order = np.argsort(np.concatenate(self._keys))
        return codes[:, order[: self.limits.sample_rows]]


class Walk:
    """Enumerates one group. Afterwards `rows` holds what is feasible; the codes are in the order `parameters`.

    `dropped` is, by rule, how many combinations of the group it rejects that no rule before did, and `first` the codes
    of the first of them, by parameter.
    """

    def __init__(self, stages: Sequence[Stage], sizes: Sequence[int], verdicts: Verdicts, rows: Rows) -> None:
        self._stages, self._verdicts, self.rows = stages, verdicts, rows
        self._limits = rows.limits
        self.parameters = tuple(stage.parameter for stage in stages if stage.parameter is not None)
        self.dropped: dict[int, int] = {}
        self.first: dict[int, dict[int, int]] = {}
        self.total = math.prod(sizes[p] for p in self.parameters)
        self._type = code_type(sizes)
        self._widths = [1 if stage.parameter is None else sizes[stage.parameter] for stage in stages]
        self._seen = [False] * len(stages)

    def run(self, looked: int = 0, nothing: bool = False) -> int:
        """Counts, and gathers rows; gives the combinations looked at in all, `looked` among them.

        With `nothing` there is nothing to count, and rules are only seen to make sense.

        Raises ConfigurationError when that passes the limit, and ExpressionError for a rule that cannot be worked out.
        """
        self._looked = looked
        self._from(0, np.zeros((0, 0 if nothing else 1), self._type), self.total)
        return self._looked

    def _from(self, s: int, codes: Column, weight: int) -> None:
        """The stages from `s` on for some rows, each of which stands for `weight` combinations."""
        if s == len(self._stages):
            self.rows.add(codes)  # the last stage has offered them
            return
        weight //= self._widths[s]
        cut = max(1, self._limits.block_rows // self._widths[s])
        waiting: list[Column] = []
        count = 0
        for start in range(0, max(1, codes.shape[1]), cut):
            waiting.append(self._place(s, codes[:, start : start + cut], weight))
            count += waiting[-1].shape[1]
            if count >= self._limits.block_rows // 2:
                self._from(s + 1, _joined(waiting), weight)
                waiting, count = [], 0
        unheard = s + 1 < len(self._stages) and not self._seen[s + 1]  # of a rule there that cannot be worked out
        if count or unheard:
            self._from(s + 1, _joined(waiting), weight)

    def _place(self, s: int, codes: Column, weight: int) -> Column:
        """The rows times the values of the stage's parameter, where its rules allow."""
        stage, rows, width = self._stages[s], codes.shape[1], self._widths[s]
        self._seen[s] = True
        self._look_at(rows * width)
        by_parameter = dict(zip(self.parameters, codes, strict=False))
        keep: Column | None = None
        alive = rows * width
        for rule in stage.rules:
            verdict = self._verdicts.judge(rule, by_parameter, stage.parameter, rows, keep)
            verdict = np.broadcast_to(verdict, (rows, width)) if keep is None else verdict & keep
            left = int(np.count_nonzero(verdict))
            if left < alive:
                self.dropped[rule] = self.dropped.get(rule, 0) + (alive - left) * weight
                if rule not in self.first:
                    lost = ~verdict if keep is None else keep & ~verdict
                    self.first[rule] = self._codes_of(int(np.argmax(lost)), codes, s)
            keep, alive = verdict, left
        chosen = np.arange(rows * width) if keep is None or alive == rows * width else np.flatnonzero(keep)
        if s + 1 == len(self._stages) and (wanted := self.rows.offer(alive)) is not None:
            chosen = chosen[wanted]
        if stage.parameter is None:
            return codes[:, chosen]
        row = chosen // width
        code = chosen - row * width
        grown = np.empty((codes.shape[0] + 1, len(chosen)), self._type)
        np.take(codes, row, axis=1, out=grown[:-1], mode="clip")  # which numpy does not buffer, as it does "raise"
        grown[-1] = code
        return grown

    def _codes_of(self, flat: int, codes: Column, s: int) -> dict[int, int]:
        row, code = divmod(flat, self._widths[s])
        found = {p: int(column[row]) for p, column in zip(self.parameters, codes, strict=False)}
        parameter = self._stages[s].parameter
        return found if parameter is None else {**found, parameter: code}

    def _look_at(self, combinations: int) -> None:
        self._looked += combinations
        if self._looked > self._limits.looked_at:
            raise ConfigurationError(
                f"counting the space takes a look at more than {self._limits.looked_at} combinations of the parameters "
                "that rules tie together; narrow some domains, or add rules on few parameters, which reject early"
            )


def _joined(parts: list[Column]) -> Column:
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
