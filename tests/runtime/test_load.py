"""What `autotile.load` finds, and what it says of it."""

from __future__ import annotations

import dataclasses
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autotile
from autotile.codegen import template_digest
from autotile.devices.emulator.device import EmulatorDevice
from autotile.devices.gpus import find_gpu
from autotile.errors import DeviceNotFound, NotTuned, UsageError
from autotile.kernels import load_kernel
from autotile.runtime.choose import choose
from autotile.runtime.load import flags_at_hand
from autotile.runtime.notes import AutotileWarning
from autotile.store import MemoryStore, Store
from autotile.types import Configuration, Record, Target

Make = Callable[..., Record]
EMULATED = "emulated NVIDIA H200"
GPU = dataclasses.replace(find_gpu("h200"), driver="570", estimated=False)


def holding(*records: Record) -> MemoryStore:
    store = MemoryStore()
    for record in records:
        store.save_best(record)
    return store


def load(store: Any, *, m: int = 64, n: int = 48, k: int = 40, **named: Any) -> autotile.TunedKernel:
    return autotile.load("matmul", m=m, n=n, k=k, device="emulator", store=store, **named)


def quietly(store: Any, **named: Any) -> autotile.TunedKernel:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AutotileWarning)
        return load(store, **named)


def test_exact(saved: Make) -> None:
    record = saved()
    found = load(holding(record), strict=True)
    assert (found.match, found.differs, found.record) == ("exact", (), record)
    assert found.config == record.configuration
    assert found.problem == record.problem


def test_from_the_store_on_disk(saved: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTILE_HOME", str(tmp_path))
    Store().save_best(saved())
    found = autotile.load("matmul", m=64, n=48, k=40, dtype="float32", device="emulator", strict=True)
    assert found.record == saved()


def test_near_problem(saved: Make) -> None:
    near, far = saved(m=128), saved(m=4096, time_ms=32.0)
    with pytest.warns(AutotileWarning, match=r"near_problem\); differs in m \(tuned 128, asked 100\)") as said:
        found = load(holding(far, near), m=100)
    assert (found.match, found.record) == ("near_problem", near)
    assert found.differs == ("m (tuned 128, asked 100)",)
    assert Path(said[0].filename) == Path(__file__)  # the warning points at the caller


def test_same_arch(saved: Make) -> None:
    other = saved(device="emulated NVIDIA GH200")
    with pytest.warns(AutotileWarning, match=r"same_arch\); differs in device \(tuned emulated NVIDIA GH200, here"):
        found = load(holding(other))
    assert (found.match, found.record) == ("same_arch", other)


def test_another_arch_is_no_ground(saved: Make) -> None:
    assert quietly(holding(saved(device="NVIDIA A100", arch="sm_80", estimated=False))).match == "default"


def test_the_own_device_comes_before_a_nearer_problem_elsewhere(saved: Make) -> None:
    store = holding(saved(device="emulated NVIDIA GH200"), saved(m=8192))
    assert quietly(store).match == "near_problem"


def test_default() -> None:
    with pytest.warns(AutotileWarning, match=r"so the kernel's default configuration serves \(match: default\)"):
        found = load(MemoryStore())
    assert (found.match, found.record) == ("default", None)
    assert found.config == load_kernel("matmul").configuration()
    assert found.differs == (f"nothing is saved for matmul float32 on {EMULATED} or its architecture that fits",)


def test_strict_names_what_differs(saved: Make) -> None:
    record = saved(template="old", driver="older", device="emulated NVIDIA GH200")
    with pytest.raises(NotTuned) as raised:
        load(holding(record), m=65, k=41, strict=True)
    for part in (
        "m (tuned 64, asked 65)",
        "k (tuned 40, asked 41)",
        "device",
        "driver (tuned older",
        "template (tuned",
    ):
        assert part in str(raised.value)
    assert "n (tuned" not in str(raised.value)
    assert "autotile search" in str(raised.value)
    with pytest.raises(NotTuned, match="nothing is saved"):
        load(MemoryStore(), strict=True)


def test_it_warns_once(saved: Make) -> None:
    store = holding(saved())
    with pytest.warns(AutotileWarning, match="m=|m \\(tuned"):
        load(store, m=65)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load(store, m=65)
    with pytest.warns(AutotileWarning):
        load(store, m=66)  # another message


def test_another_template_is_not_exact(saved: Make) -> None:
    with pytest.warns(AutotileWarning, match="template"):
        found = load(holding(saved(template="0" * 16)))
    assert found.match != "exact"
    assert [text.partition(" ")[0] for text in found.differs] == ["template"]


@pytest.mark.parametrize(("field", "part"), [("driver",) * 2, ("compiler",) * 2, ("flags", "compiler flags")])
def test_another_driver_or_compiler_is_said_once(saved: Make, field: str, part: str) -> None:
    """The kernel is exact all the same, and a call does not say it again."""
    store, a, b = holding(saved(**{field: "5.70"})), np.ones((64, 40), np.float32), np.ones((40, 48), np.float32)
    with pytest.warns(AutotileWarning, match=f"tuned with the {part} 5.70; here it is .* It still runs") as said:
        found = load(store, strict=True)
    assert found.match == "exact"
    assert [Path(warning.filename) for warning in said] == [Path(__file__)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.array_equal(load(store, strict=True)(a, b), a @ b)


def test_flags_at_hand_are_those_of_the_environment(saved: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "-O1 -G")
    monkeypatch.setenv("CPATH", "/mine")
    assert flags_at_hand(Target("cuda", "sm_90")) == "NVCC_APPEND_FLAGS='-O1 -G'"
    with pytest.warns(AutotileWarning, match="the compiler flags none; here it is .*CPATH=/mine"):
        load(holding(saved(flags="")))
    assert load(holding(saved()), strict=True).match == "exact"


@pytest.mark.parametrize("ours", [{"template": "0" * 16}, {"m": 128}, {}])
def test_an_estimate_is_never_served_on_a_gpu(saved: Make, ours: dict[str, Any]) -> None:
    """Not even one that bears the GPU's own name."""
    kernel = load_kernel("matmul")
    store = holding(saved(device=GPU.name, arch=GPU.arch, **ours))
    found = choose(kernel, kernel.problem({"m": 64, "n": 48, "k": 40}), GPU, template_digest(kernel), store)
    assert (found.match, found.record) == ("default", None)


def test_a_measurement_serves_the_emulator(saved: Make) -> None:
    """The other way round nothing is claimed that was not measured."""
    measured = saved(device=GPU.name, driver="570", estimated=False)
    assert quietly(holding(measured)).match == "same_arch"


def test_a_configuration_that_does_not_fit_the_device_is_passed_over(saved: Make) -> None:
    """192 KiB of shared memory ran where it was measured; this GPU has 64."""
    kernel = load_kernel("matmul")
    small = dataclasses.replace(GPU, shared_bytes_optin=65536, shared_bytes_per_sm=65536)
    parameters = {"staging": "dynamic", "block_m": 128, "block_n": 128, "block_k": 32, "stages": 4, "vector": 4}
    parameters |= {"thread_m": 8, "thread_n": 8}
    big = saved(device=GPU.name, estimated=False, parameters=parameters)
    for device, match in ((GPU, "exact"), (small, "default")):
        assert choose(kernel, big.problem, device, big.identity.template, holding(big)).match == match


# ---- what has failed here -------------------------------------------------------------------------------------------

OTHER = {"block_m": 64, "block_n": 32}


def failing(record: Record, outcome: str = "wrong_result") -> Record:
    return dataclasses.replace(record, outcome=outcome, measurement=None, extra=(), message="9 elements are wrong")


def with_trials(store: MemoryStore, *trials: Record) -> MemoryStore:
    store.extend(trials)
    return store


@pytest.mark.parametrize("outcome", ["wrong_result", "launch_error", "compile_error", "implausible", "timeout"])
def test_what_failed_on_this_problem_is_passed_over(saved: Make, outcome: str) -> None:
    """Though it is the best of a near one, or of the architecture."""
    near, next_best = saved(m=128), saved(m=4096, parameters=OTHER)
    store = holding(near, next_best)
    assert quietly(store).record == near
    assert quietly(with_trials(store, failing(saved(), outcome))).record == next_best
    elsewhere = holding(saved(device="emulated NVIDIA GH200"))
    assert quietly(elsewhere).match == "same_arch"
    assert quietly(with_trials(elsewhere, failing(saved(), outcome))).match == "default"


@pytest.mark.parametrize(
    "other", [{"m": 65}, {"device": "emulated NVIDIA GH200"}, {"template": "0" * 16}, {"parameters": OTHER}]
)
def test_what_failed_elsewhere_says_nothing(saved: Make, other: dict[str, Any]) -> None:
    """On another problem or device, in another text, or with other parameters."""
    near = saved(m=128)
    assert quietly(with_trials(holding(near), failing(saved(**other)))).record == near


def test_a_later_success_clears_all_but_a_wrong_result(saved: Make) -> None:
    near, right = saved(m=128), dataclasses.replace(saved(), extra=())
    for outcome, match in (("launch_error", "near_problem"), ("wrong_result", "default")):
        assert quietly(with_trials(holding(near), failing(saved(), outcome), right)).match == match
    for trials in ((right, failing(right)), (failing(right), failing(right, "launch_error"), right)):
        assert quietly(with_trials(holding(near), *trials)).match == "default"


def test_a_default_that_failed_is_refused(saved: Make) -> None:
    failed = failing(saved(parameters={}))
    with pytest.raises(
        NotTuned, match=r"the default configuration has failed there \(wrong_result: 9 elements are wrong"
    ):
        load(with_trials(MemoryStore(), failed))
    assert quietly(with_trials(holding(saved(m=128)), failed)).match == "near_problem"


def test_an_exact_match_reads_no_trials(saved: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be a hundred thousand, and the best is proven."""
    monkeypatch.setattr(MemoryStore, "records", lambda *given: pytest.fail("read"))
    assert load(holding(saved())).match == "exact"


def test_a_fallback_reads_the_trials_of_the_problem_alone(saved: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(MemoryStore, "records", lambda store, *given: asked.append(given) or [])
    quietly(holding(saved(m=128)))
    assert asked == [("matmul", saved().problem, EMULATED)]


def test_what_is_not_proven_is_not_served(saved: Make) -> None:
    """A run that was killed before its finals, or a hand-made file."""
    unproven = [dataclasses.replace(saved(m=m), extra=extra) for m, extra in ((64, ()), (128, (("proven", "no"),)))]
    assert quietly(holding(*unproven)).match == "default"
    with pytest.raises(NotTuned, match="nothing is saved"):
        load(holding(*unproven), strict=True)


@pytest.mark.parametrize(
    ("kernel", "tuned", "asked"),
    [
        ("matmul", "float32", "float64"),
        ("matmul_tensor", "float64", "float16"),
        ("matmul_tensor", "float16", "bfloat16"),
    ],
)
def test_another_dtype_is_not_reused(saved: Make, kernel: str, tuned: str, asked: str) -> None:
    found = quietly(holding(saved(kernel=kernel, dtype=tuned)), dtype=asked)
    assert (found.match, found.record, found.problem.dtype) == ("default", None, asked)


def test_a_record_of_other_parameters_is_passed_over(saved: Make) -> None:
    old = dataclasses.replace(saved(), configuration=Configuration((("tile", 32),)))
    assert quietly(holding(old)).match == "default"


def test_a_record_of_other_dimensions_is_passed_over(saved: Make) -> None:
    record = saved()
    old = dataclasses.replace(record, problem=dataclasses.replace(record.problem, sizes=(("m", 64), ("n", 48))))
    assert quietly(holding(old)).match == "default"


def test_a_value_that_the_kernel_no_longer_has_is_passed_over(saved: Make) -> None:
    """A name that the template does not know would take whichever branch comes last."""
    record = saved()
    renamed = {**dict(record.configuration), "staging": "shared"}
    old = dataclasses.replace(record, configuration=Configuration.of(renamed))
    assert quietly(holding(old)).match == "default"


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"m": 0}, "m must be an integer from 1"),
        ({"m": -4}, "m must be an integer from 1"),
        ({"m": 64.0}, "m must be an integer from 1"),
        ({"m": 2**31}, "2147483647"),
        ({"dtype": "flot32"}, "did you mean 'float32'"),
        ({"q": 3}, "no dimension 'q'"),
    ],
)
def test_what_cannot_be_asked(named: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load(MemoryStore(), **named)


def test_a_missing_size_and_an_unknown_kernel() -> None:
    with pytest.raises(UsageError, match="also needs k"):
        autotile.load("matmul", m=1, n=1, device="emulator")
    with pytest.raises(UsageError, match="did you mean 'matmul'"):
        autotile.load("matmull", m=1, n=1, k=1, device="emulator")


def test_numpy_sizes_are_sizes(saved: Make) -> None:
    assert load(holding(saved()), m=np.int64(64)).problem == saved().problem


def test_devices_that_are_not_there() -> None:
    with pytest.raises(UsageError, match="did you mean 'emulator'"):
        autotile.load("matmul", m=1, n=1, k=1, device="emulater")
    with pytest.raises(DeviceNotFound, match="h200"):
        autotile.load("matmul", m=1, n=1, k=1, device="emulator:h20")


def test_auto_without_a_gpu_says_so(monkeypatch: pytest.MonkeyPatch, saved: Make) -> None:
    from autotile.devices import cuda
    from autotile.runtime.load import opened_device

    def none(number: int) -> None:
        raise DeviceNotFound("no GPU today")

    monkeypatch.setattr(cuda, "open_cuda", none)
    opened_device.cache_clear()
    with pytest.warns(AutotileWarning, match=r"no GPU today.*estimates"):
        found = autotile.load("matmul", m=64, n=48, k=40, store=holding(saved()))
    assert found.match == "exact"
    opened_device.cache_clear()


def test_what_a_tuned_kernel_tells(saved: Make) -> None:
    found = load(holding(saved()))
    assert repr(found) == f"<autotile matmul 64×48×40 float32 on {EMULATED}, exact: {found.config.label}>"
    assert 'extern "C" __global__' in found.source
    assert re.search(r"\bmatmul\(", found.source)
    assert found.record.measurement.estimated
    assert EmulatorDevice().info.name == EMULATED
