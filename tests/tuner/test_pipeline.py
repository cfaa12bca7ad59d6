"""What is under way in a search, stage by stage: builds are ended by hand, and trials take as long as they are told."""

from __future__ import annotations

import threading
import time
from concurrent.futures import CancelledError
from types import SimpleNamespace
from typing import Any

import pytest
from pipeline_site import SOON_S, Hours, Site, site

from autotile.errors import EnvironmentalError, LaunchError, ToolchainMissing
from autotile.tuner import pipeline as module
from autotile.tuner.pipeline import SPARE

both = pytest.mark.parametrize("overlaps", [True, False], ids=["overlaps", "in this thread"])


# ---- from asking to an outcome --------------------------------------------------------------------------------------


@both
def test_a_variant_is_built_measured_and_told(overlaps: bool) -> None:
    with site(overlaps) as s:
        s.submit("a")
        assert len(s.pipeline) == 1
        assert s.pipeline.next(0.01) == []
        s.compilers.built("a")
        (outcome,) = s.outcomes(1)
        assert (outcome.key, outcome.binary, outcome.trial, outcome.error) == ("a", "binary of a", "trial of a", None)
        assert len(s.pipeline) == 0
        assert s.pipeline.next(0.01) == []


def test_the_device_takes_what_is_built_first() -> None:
    with site() as s:
        s.submit("a", "b", "c", "d")
        s.go.clear()
        s.compilers.built("b")
        s.until(lambda: s.pipeline.next(0.01) == [] and s.measured == ["b"])
        for text in "dac":
            s.compilers.built(text)
            assert s.pipeline.next(0.01) == []
        s.go.set()
        assert [outcome.key for outcome in s.outcomes(4)] == ["b", "d", "a", "c"]
        assert s.most == 1


@both
def test_what_is_built_between_two_looks_is_taken_as_it_was_asked_for(overlaps: bool) -> None:
    """So that a seed repeats where compilers answer at once."""
    with site(overlaps) as s:
        s.submit("a", "b", "c")
        s.compilers.built("c", "b", "a")
        assert [outcome.key for outcome in s.outcomes(3)] == s.measured == ["a", "b", "c"]
        assert s.most == 1


def test_asking_goes_on_while_the_device_works() -> None:
    with site() as s:
        s.go.clear()
        s.submit("a")
        s.compilers.built("a")
        s.until(lambda: s.pipeline.next(0.01) == [] and s.measured == ["a"])
        s.submit("b")  # returns, though the trial waits
        assert len(s.pipeline) == 2
        s.go.set()
        assert [outcome.key for outcome in s.outcomes(1)] == ["a"]


def test_nothing_is_measured_before_all_is_prepared() -> None:
    with site(prepared=False) as s:
        s.submit("a")
        s.compilers.built("a")
        assert s.pipeline.next(0.05) == []
        assert (s.measured, s.pipeline.ready) == ([], False)
        s.prepared.set()
        assert [outcome.key for outcome in s.outcomes(1)] == ["a"]
        assert s.pipeline.ready
        assert s.pipeline.prepare_s >= 0.04
        assert s.pipeline.idle_s < 0.04  # it was not a compiler that it waited for


@both
def test_what_cannot_be_prepared_is_raised(overlaps: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Site) -> None:
        raise EnvironmentalError("no memory")

    monkeypatch.setattr(Site, "prepare", refuse)
    with site(overlaps) as s:
        for _ in range(2):
            with pytest.raises(EnvironmentalError, match="no memory"):
                s.outcomes(1)
        assert not s.pipeline.ready
        assert s.measured == []


# ---- faults ----------------------------------------------------------------------------------------------------------


@both
def test_a_variant_that_fails_is_an_outcome(overlaps: bool) -> None:
    with site(overlaps) as s:
        s.faults["b"] = LaunchError("too many registers")
        s.submit("a", "b", "c")
        refused = LaunchError("no code")
        s.compilers.futures["a"].set_exception(refused)
        s.compilers.built("b", "c")
        first, second, third = s.outcomes(3)
        assert (first.key, first.binary, first.trial, first.error) == ("a", None, None, refused)
        assert (second.key, second.binary, second.trial) == ("b", "binary of b", None)
        assert second.error is s.faults["b"]
        assert (third.key, third.trial) == ("c", "trial of c")
        assert s.measured == ["b", "c"]


@both
@pytest.mark.parametrize("error", [EnvironmentalError("gone"), ZeroDivisionError()], ids=["environment", "bug"])
def test_what_is_no_variants_fault_is_raised(overlaps: bool, error: Exception) -> None:
    with site(overlaps) as s:
        s.faults["a"] = error
        s.submit("a")
        s.compilers.built("a")
        with pytest.raises(type(error)):
            s.outcomes(1)


@both
def test_a_compiler_that_is_gone_is_raised(overlaps: bool) -> None:
    with site(overlaps) as s:
        s.submit("a")
        s.compilers.futures["a"].set_exception(ToolchainMissing("no nvcc"))
        with pytest.raises(ToolchainMissing, match="no nvcc"):
            s.outcomes(1)


# ---- the same text twice ---------------------------------------------------------------------------------------------


@both
def test_two_of_one_text_have_an_outcome_each(overlaps: bool) -> None:
    """They share a compile, and the second is settled by the first."""
    with site(overlaps) as s:
        for key in ("first", "second"):
            s.pipeline.submit(key, SimpleNamespace(source="a"))  # type: ignore[arg-type]
        s.compilers.built("a")
        (first,) = s.outcomes(1)
        s.settled.add("binary of a")
        (second,) = s.outcomes(1)
        assert (first.key, first.trial, second.key, second.trial) == ("first", "trial of a", "second", None)
        assert (second.binary, second.error, second.wall_s) == ("binary of a", None, 0.0)
        assert s.measured == ["a"]
        assert len(s.pipeline) == 0


# ---- how many, and how long ------------------------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Hours:
    hours = Hours()
    monkeypatch.setattr(module, "time", hours)
    return hours


def filled(s: Site, prefix: str) -> list[str]:
    """Submits as many as are wanted."""
    texts: list[str] = []
    while s.pipeline.wants_more:
        texts.append(f"{prefix}{len(texts)}")
        s.submit(texts[-1])
    return texts


@pytest.mark.parametrize(
    ("build_s", "trial_s", "under_way"), [(1.0, 4.0, 1 + SPARE), (4.0, 1.0, 4 + SPARE), (900.0, 1.0, 8 + SPARE)]
)
def test_as_many_as_keep_the_device_busy(clock: Hours, build_s: float, trial_s: float, under_way: int) -> None:
    """Before the first trial has ended nobody knows how long one takes: as many as there are compilers, and two."""
    with site(overlaps=False, jobs=8) as s:
        s.clock, s.trial_s = clock, trial_s
        texts = filled(s, "a")
        assert len(texts) == 8 + SPARE
        clock.now_s += build_s
        s.compilers.built(texts[0])
        assert len(s.outcomes(1)) == 1
        for text in texts[1:]:
            s.compilers.futures[text].set_exception(LaunchError("no"))  # out of the way
        s.outcomes(len(texts) - 1)
        assert len(filled(s, "b")) == under_way


def test_what_it_takes_is_a_mean_that_forgets(clock: Hours) -> None:
    """Trials that get longer are soon known to be."""
    with site(overlaps=False, jobs=8) as s:
        s.clock, s.trial_s = clock, 1.0
        for i in range(12):
            s.submit(f"x{i}")
            clock.now_s += 8.0
            s.compilers.built(f"x{i}")
            s.outcomes(1)
            s.trial_s = 8.0
        assert len(filled(s, "late")) == 2 + SPARE


def test_waiting_for_a_compiler_is_idle_time() -> None:
    with site(overlaps=False) as s:
        s.submit("a")
        timer = threading.Timer(0.1, s.compilers.built, ["a"])
        timer.start()
        s.outcomes(1)
        timer.join()
        assert 0.08 <= s.pipeline.idle_s < SOON_S


def test_waiting_for_the_device_is_no_idle_time() -> None:
    with site() as s:
        s.go.clear()
        s.submit("a")
        s.compilers.built("a")
        timer = threading.Timer(0.15, s.go.set)
        timer.start()
        (outcome,) = s.outcomes(1)
        timer.join()
        assert outcome.wall_s >= 0.1
        assert s.pipeline.idle_s < 0.05


# ---- the end ---------------------------------------------------------------------------------------------------------


def test_the_last_one_is_waited_for() -> None:
    with site() as s:
        assert s.pipeline.last() == []
        s.go.clear()
        s.submit("a", "b")
        s.compilers.built("a")
        s.until(lambda: s.pipeline.next(0.01) == [] and s.measured == ["a"])
        threading.Timer(0.05, s.go.set).start()
        assert [outcome.key for outcome in s.pipeline.last()] == ["a"]  # b is not built, and nobody waits for it
        assert s.pipeline.last() == []


@pytest.mark.parametrize("stage", ["preparing", "measuring"])
def test_an_abandoned_end_is_soon(stage: str) -> None:
    s = Site(prepared=stage == "measuring")
    s.go.clear()
    s.submit("a", "b", "c")
    s.compilers.built("a", "b")
    if stage == "measuring":
        s.until(lambda: s.pipeline.next(0.01) == [] and s.measured == ["a"])
    begun = time.monotonic()
    s.pipeline.close(abandon=True)
    assert time.monotonic() - begun < SOON_S / 2
    assert s.abandoned
    assert s.measured == (["a"] if stage == "measuring" else [])
    assert s.compilers.futures["c"].cancelled()
    assert not any(thread.name.startswith("autotile-measure") for thread in threading.enumerate())


def test_a_trial_that_was_about_to_begin_is_broken_off_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the end was called it had not got as far as to the bench, where there was nothing to break off."""
    about, began = threading.Event(), threading.Event()
    given = Site.measure

    def measure(self: Site, variant: Any, binary: Any) -> Any:
        about.set()
        time.sleep(0.05)
        began.set()
        return given(self, variant, binary)

    def abandon(self: Site) -> None:
        if began.is_set():
            self.go.set()

    monkeypatch.setattr(Site, "measure", measure)
    monkeypatch.setattr(Site, "abandon", abandon)
    s = Site()
    s.go.clear()
    s.submit("a")
    s.compilers.built("a")
    s.until(lambda: s.pipeline.next(0.01) == [] and about.is_set())
    begun = time.monotonic()
    s.pipeline.close(abandon=True)
    assert time.monotonic() - begun < SOON_S / 2


def test_a_plain_end_waits_for_the_trial_and_begins_no_other() -> None:
    s = Site()
    s.go.clear()
    s.submit("a", "b")
    s.compilers.built("a", "b")
    s.until(lambda: s.pipeline.next(0.01) == [] and s.measured == ["a"])
    threading.Timer(0.05, s.go.set).start()
    s.pipeline.close()
    assert (s.measured, s.now, s.abandoned) == (["a"], 0, False)


def test_a_trial_that_was_handed_over_and_not_begun_is_dropped() -> None:
    """The thread may be slow to begin: by then the bench may be closed."""
    s = Site()
    s.submit("a")
    s.pipeline._closing = True
    s.compilers.built("a")
    with pytest.raises(CancelledError):
        s.outcomes(1)
    s.pipeline.close()
    assert s.measured == []
