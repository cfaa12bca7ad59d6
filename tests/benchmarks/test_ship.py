"""What may ship: proven results of today's machine code, the later file's where two have one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from autotile.codegen import render, template_digest
from autotile.kernels import Kernel, load_kernel
from autotile.report import export
from autotile.store import ShippedStore
from autotile.types import PROVEN, Binary, Configuration, Identity, Measurement, Record, Source, Target

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


def tuned(kernel: Kernel, dtype: str, preset: str, **sizes: int) -> Record:
    problem, configuration = kernel.problem(sizes, dtype), kernel.configuration(kernel.presets[preset])
    return record(
        problem=problem,
        configuration=configuration,
        launch=kernel.launch_of(problem, configuration),
        source_digest=render(kernel, problem, configuration).digest,
    )


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


def test_a_record_from_before_a_parameter_ships_with_the_default() -> None:
    from ship import shipped

    fewer = Configuration(CONFIGURATION.items_[1:])
    assert shipped(record(configuration=fewer), never).configuration == CONFIGURATION


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


def test_kernels_of_one_name_ship_in_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of tensor cores too, with launches whose tensor maps no file holds, and with switches."""
    import ship

    plain, tensor = load_kernel("matmul"), load_kernel("matmul_tensor")
    sizes = {"m": 4096, "n": 4096, "k": 4096}
    records = [
        record(),
        tuned(plain, "float32", "large", **sizes),
        tuned(tensor, "bfloat16", "large", **sizes),
        tuned(tensor, "bfloat16", "large", **sizes, bias=True, gelu=True),
        tuned(tensor, "tf32", "small", m=4095, n=4097, k=4093),
        tuned(tensor, "float8_e4m3fn", "large", **sizes, b_turned=True, wide=True),
    ]
    assert any(one.launch is not None and one.launch.maps for one in records)
    files = [tmp_path / "old.json", tmp_path / "tensor.json"]
    for path, some in zip(files, (records[:2], records[2:]), strict=True):
        export(some, "json", path, load_kernel)
    out = tmp_path / "tuned" / "nvidia-h200.json"
    monkeypatch.setattr(ship, "build", never)
    monkeypatch.setattr(sys, "argv", ["ship.py", *map(str, files), "--out", str(out)])
    ship.main()
    store = ShippedStore(out.parent)
    for one in records:
        found = store.best(one.problem.kernel, one.problem, one.identity.device)
        assert found is not None
        assert (found.configuration, found.launch) == (one.configuration, one.launch)
        assert found.identity.template == template_digest(load_kernel(one.problem.kernel))
