"""Calls of the matmul on tensor cores on a GPU, in both tiers: right, and with tensor maps that follow the arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_call_gpu import PAIRS

import autotile
from autotile.build import compiler_at_hand
from autotile.codegen import template_digest
from autotile.devices.select import open_device
from autotile.kernels import load_kernel
from autotile.runtime.load import flags_at_hand
from autotile.space import violations
from autotile.store import MemoryStore
from autotile.types import PROVEN, SCHEMA_VERSION, Identity, Measurement, Record

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore::autotile.runtime.notes.AutotileWarning"),  # what suits other sizes is chosen
]
KERNEL = load_kernel("matmul_tensor")
SIZES = {"m": 256, "n": 512, "k": 320}
POINTS = ["plain", "portable", "large", "tall", "in_turns", "in_turns_shared", "small", "few_rows"]
KINDS = ["torch", "cupy", "pycuda"]

Array = np.ndarray[Any, Any]


def tuned(point: str, dtype: str = "float16", device: str = "cuda", **asked: Any) -> Any:
    """The kernel as if a search had found this preset the best."""
    there, problem = open_device(device), KERNEL.problem({**SIZES, **asked}, dtype)
    configuration, info = KERNEL.configuration(KERNEL.presets[point]), there.info
    if violations(KERNEL, problem, info, configuration):
        pytest.skip(f"{info.name} does not run {point} for {problem.label}")
    compiler, flags = compiler_at_hand(there.target) or "none", flags_at_hand(there.target)
    identity = Identity(
        info.name, info.arch, info.driver, compiler, template_digest(KERNEL), SCHEMA_VERSION, info.estimated, flags
    )
    store = MemoryStore()
    store.save_best(
        Record(
            problem, configuration, identity, "ok", measurement=Measurement(1.0, 1.0, 0.0, 9, estimated=info.estimated),
            created="2025-06-01T12:00:00+00:00", extra=(PROVEN,),
        )
    )  # fmt: skip
    kernel = autotile.load("matmul", **{**SIZES, **asked}, dtype=dtype, device=device, store=store, strict=True)
    assert kernel.config == configuration
    return kernel


def operands(m: int, n: int, k: int, seed: int = 0) -> tuple[Array, Array]:
    random = np.random.default_rng([m, n, k, seed])
    return random.standard_normal((m, k)).astype(np.float16), random.standard_normal((k, n)).astype(np.float16)


def assert_product(result: Any, a: Array, b: Array, dtype: str = "float16") -> None:
    problem = KERNEL.problem({"m": a.shape[0], "n": b.shape[1], "k": a.shape[1]}, dtype)
    bound = KERNEL.error_bound({"a": a, "b": b}, problem)["c"]
    exact = a.astype(np.float64) @ b.astype(np.float64)
    assert np.all(np.abs(np.asarray(result, np.float64) - exact) <= bound)


@pytest.fixture
def no_long_way(monkeypatch: pytest.MonkeyPatch) -> Any:
    """From when it is called, a kernel whose calls must be quick ones."""

    def forbid(kernel: Any) -> None:
        def check(*given: Any) -> None:
            raise AssertionError("the long way")

        monkeypatch.setattr(kernel._checker, "check", check)

    return forbid


@pytest.mark.parametrize("kind", ["numpy", *KINDS])
@pytest.mark.parametrize("point", POINTS)
def test_the_product_is_right_on_the_tuned_size_and_others(point: str, kind: str) -> None:
    """Among them sizes whose operands are packed, and rows of C that begin anywhere."""
    give, take = PAIRS[kind]()
    matmul = tuned(point)
    for m, n, k in ((256, 512, 320), (1, 1, 1), (33, 65, 17), (300, 520, 264), (257, 63, 129), (16, 1000, 2000)):
        a, b = operands(m, n, k)
        result = matmul(give(a), give(b))
        assert type(result).__module__.partition(".")[0] == kind
        assert_product(take(result), a, b)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("point", POINTS)
def test_arrays_at_other_addresses(no_long_way: Any, point: str, kind: str) -> None:
    """The maps of A, B and C follow: on the long way, and on the short one, where nothing else changes."""
    give, take = PAIRS[kind]()
    matmul, sizes = tuned(point), tuple(SIZES.values())
    kept = []  # or an address would be given out again
    for number in range(6):
        if number == 2:
            no_long_way(matmul)
        a, b = operands(*sizes, seed=number)
        out = give(np.full((sizes[0], sizes[1]), np.nan, np.float16))
        given = give(a), give(b)
        assert matmul(*given, out=out) is out
        kept.append((a, b, given, out))
    for a, b, _, out in kept:
        assert_product(take(out), a, b)
    (first, _, given, out), (_, other, others, _) = kept[0], kept[1]
    matmul(given[0], others[1], out=out)  # one of them at another address
    assert_product(take(out), first, other)


@pytest.mark.parametrize("point", ["portable", "large"])
def test_a_result_that_was_freed_and_one_in_its_place(no_long_way: Any, point: str) -> None:
    give, take = PAIRS["torch"]()
    matmul = tuned(point)
    for number in range(5):
        if number == 2:
            no_long_way(matmul)
        a, b = operands(*SIZES.values(), seed=number)
        assert_product(take(matmul(give(a), give(b))), a, b)


@pytest.mark.parametrize("point", ["plain", "large", "in_turns", "few_rows"])
def test_packed_operands_on_the_short_way(no_long_way: Any, point: str) -> None:
    """A's rows are odd, so that its map is of the scratch memory; several streams have scratch memory of their own."""
    torch = pytest.importorskip("torch")
    matmul = tuned(point, k=321)
    a, b = operands(256, 512, 321)
    on_gpu = torch.from_numpy(a).cuda(), torch.from_numpy(b).cuda()
    torch.cuda.synchronize()
    for stream in (torch.cuda.default_stream(), torch.cuda.Stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            for _ in range(3):
                result = matmul(*on_gpu)
        stream.synchronize()
        assert_product(result.cpu().numpy(), a, b)
    no_long_way(matmul)
    assert_product(matmul(*on_gpu).cpu().numpy(), a, b)


@pytest.mark.parametrize("point", POINTS)
def test_bfloat16_with_all_that_may_be_added(point: str) -> None:
    torch = pytest.importorskip("torch")
    matmul = tuned(point, "bfloat16", addend=True, bias=True, relu=True)
    shapes = ((256, 320), (320, 512), (256, 512), (512,))
    a, b, addend, bias = (torch.randn(*shape, device="cuda", dtype=torch.bfloat16) for shape in shapes)
    exact = (a.double() @ b.double() * 0.5 + 2 * addend.double() + bias.double()).clamp(min=0)
    for _ in range(3):
        result = matmul(a, b, addend, bias, alpha=0.5, beta=2.0)
        assert result.dtype == torch.bfloat16
        assert float((result.double() - exact).abs().max()) <= 2.0**-8 * float(exact.max())
    matmul(a, b, addend, bias, alpha=0.5, beta=2.0, out=addend)  # C in the addend's place
    assert torch.equal(addend, result)


@pytest.mark.parametrize("dtype", ["tf32", "int8", "float8_e4m3fn", "float8_e5m2", "float64"])
def test_other_types_of_torch(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(1)
    kind = {"tf32": torch.float32, "int8": torch.int8}.get(dtype) or getattr(torch, dtype)
    matmul = autotile.load("matmul", **SIZES, dtype=dtype, wide=dtype.startswith("float8"), device="cuda")
    a, b = (torch.randint(-8, 9, shape, device="cuda").to(kind) for shape in ((256, 320), (320, 512)))
    for _ in range(3):
        result = matmul(a, b)
    assert torch.equal(result.double(), a.double() @ b.double()), "whole numbers as small as these are exact"


@pytest.mark.parametrize("point", ["plain", "large"])
def test_an_array_off_alignment_and_a_part_of_a_larger_one(point: str) -> None:
    torch = pytest.importorskip("torch")
    matmul = tuned(point, "bfloat16")
    memory = torch.randn(300 * 400, device="cuda").to(torch.bfloat16)
    b = torch.randn(320, 512, device="cuda").to(torch.bfloat16)
    for a in (memory[1 : 1 + 256 * 320].view(256, 320), memory.view(300, 400)[3:259, 7:327]):
        exact = a.double() @ b.double()
        assert float((matmul(a, b).double() - exact).abs().max()) <= 2.0**-8 * float(exact.abs().max())
