"""What may ship: proven results of today's machine code, the later file's where two have one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from autotile.codegen import render, template_digest
from autotile.kernels import load_kernel
from autotile.types import PROVEN, Binary, Identity, Measurement, Record, Source, Target

KERNEL = load_kernel("transpose")
PROBLEM = KERNEL.problem({"rows": 64, "cols": 64})
CONFIGURATION = KERNEL.configuration()
IDENTITY = Identity("NVIDIA H200", "sm_90", "1", "nvcc 13", "an older template", 1, False)
TODAY = render(KERNEL, PROBLEM, CONFIGURATION).digest


def record(**changes: object) -> Record:
    made = Record(
        PROBLEM,
        CONFIGURATION,
        IDENTITY,
        "ok",
        measurement=Measurement(1.0, 1.0, 0.0, 9),
        launch=KERNEL.launch_of(PROBLEM, CONFIGURATION),
        source_digest=TODAY,
        binary_digest="code",
        extra=(PROVEN,),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def compiled_to(code: str) -> Callable[[Source, Record], Binary]:
    return lambda source, record: Binary(Path(), "transpose", code, Target("cuda", "sm_90"), "nvcc 13", 1, 0, 0, 0.1)


def never(source: Source, record: Record) -> Binary:
    raise AssertionError("nothing has to be built for a text that is the same")


def test_a_text_that_is_the_same_gets_todays_identity() -> None:
    from ship import shipped

    assert shipped(record(), never).identity.template == template_digest(KERNEL)


def test_a_text_that_changed_ships_where_its_machine_code_did_not() -> None:
    from ship import Refused, shipped

    old = record(source_digest="an older text")
    assert shipped(old, compiled_to("code")).source_digest == TODAY
    with pytest.raises(Refused, match="another program"):
        shipped(old, compiled_to("other code"))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"extra": ()}, "not proven"),
        ({"identity": replace(IDENTITY, estimated=True)}, "an estimate"),
        ({"launch": replace(record().launch, shared_bytes=16)}, "launched in another way"),  # type: ignore[type-var]
    ],
)
def test_what_may_not_ship(changes: dict[str, object], why: str) -> None:
    from ship import Refused, shipped

    with pytest.raises(Refused, match=why):
        shipped(record(**changes), never)


def test_the_best_of_the_last_file_wins() -> None:
    from ship import merged

    fast, slow = record(), record(measurement=Measurement(2.0, 2.0, 0.0, 9))
    assert merged([[fast], [slow]]) == [slow]
    assert merged([[slow, fast], []]) == [fast]
    other = record(problem=KERNEL.problem({"rows": 65, "cols": 64}))
    assert merged([[fast, other]]) == [fast, other]
