"""Kernel folders that are wrong in ways a careless check would miss: a search on the emulator saves none of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from autotile.assets import templates_dir
from autotile.build import Builder
from autotile.devices.emulator.device import EmulatorDevice
from autotile.errors import KernelError
from autotile.kernels import load_kernel
from autotile.spec import SearchOptions, Spec
from autotile.store import MemoryStore
from autotile.tuner import SearchResult, search

DEFINITION = """
import numpy as np
from autotile.kernels import Input, Kernel, LaunchPlan, Output, Parameter, Size, Trait

KERNEL = Kernel(
    name="twice", doc="y = 2 x", dimensions=("n",), dtypes=("{dtype}",),
    arguments=(Input("x", ("n",)), Output("y", ("n",)), Size("n")),
    parameters=(Parameter("width", (64,), 64, "threads"),),
    launch=LaunchPlan(("{grid}",), ("width",)),
    traits=({traits}),
    reference=lambda inputs, problem: {{"y": 2 * inputs["x"].astype({wide})}},
    error_bound=lambda inputs, problem: {{"y": {bound}}},
    flops="0", bytes="2 * problem.n * problem.itemsize",
    trace_sizes=("width",),
)
"""
TEMPLATE = """
{{% if false %}}{{{{ width }}}}{{% endif %}}
extern "C" __global__ void {{{{ entry }}}}(const {{{{ ctype }}}}* x, {{{{ ctype }}}}* y, int n) {{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    {body}
}}
"""
RIGHT = "if (i < n) y[i] = 2 * x[i];"
FINE = {
    "dtype": "float32",
    "wide": "np.float64",
    "grid": "ceil_div(problem.n, width)",
    "traits": "",
    "bound": "1e-6 + 1e-6 * np.abs(inputs['x'])",
    "body": RIGHT,
}
WHOLE = "Trait('whole', 'problem.n % width == 0', 'whole blocks'),"
ALIGNED = "Trait('aligned', 'problem.alignment % 16 == 0', 'aligned arrays'),"
WRONG = {
    "too few blocks beyond three": {"grid": "min(3, ceil_div(problem.n, width))"},
    "one block's data everywhere": {
        "traits": WHOLE,
        "body": "{% if whole %} y[i] = 2 * x[threadIdx.x]; {% else %}" + RIGHT + "{% endif %}",
    },
    "right on aligned arrays alone": {
        "traits": ALIGNED,
        "body": "{% if aligned %}" + RIGHT + "{% else %} if (i < n) y[i] = 3 * x[i]; {% endif %}",
    },
    "wrong from the sixth block on": {"body": "if (i < n) y[i] = (blockIdx.x > 5 ? 3 : 2) * x[i];"},
    "an input turned round twice": {
        "body": "if (i < n) { y[i] = x[i] * x[i] / x[i] * 2; ((float*)x)[i] = -x[i]; }",
    },
    "an input spoilt and mended": {
        "body": "if (i < n) { const float v = x[i]; ((float*)x)[i] = 0; y[i] = 2 * v; ((float*)x)[i] = v; }",
    },
    "words in the text for unaligned arrays": {
        "traits": ALIGNED,
        "body": "{% if aligned %}" + RIGHT + "{% else %} if (n % 4) {" + RIGHT + "} else if (i < n / 4) { "
        "const float4 v = ((const float4*)x)[i]; ((float4*)y)[i] = make_float4(2 * v.x, 2 * v.y, 2 * v.z, 2 * v.w); }"
        "{% endif %}",
    },
    "NaN, in a text of large sizes alone": {
        "traits": "Trait('large', 'problem.n > 10000', 'many elements'),",
        "body": "{% if large %} if (i < n) y[i] = x[i] == x[i] ? 2 * x[i] : 0.0f; {% else %}" + RIGHT + "{% endif %}",
    },
    "wrong from the thirteenth block on": {"body": "if (i < n) y[i] = (blockIdx.x > 12 ? 3 : 2) * x[i];"},
    "large numbers clamped": {
        "body": "if (i < n) y[i] = isfinite(x[i]) && fabsf(x[i]) > 100 ? copysignf(200, x[i]) : 2 * x[i];",
    },
    "the imaginary part": {
        "dtype": "complex64",
        "wide": "np.complex128",
        "body": "if (i < n) { y[i].x = 2 * x[i].x; y[i].y = 3 * x[i].y; }",
    },
}
BAD_BOUNDS = {
    "negative": "-1.0",
    "infinite": "np.inf",
    "nan": "np.nan",
    "of another shape": "np.ones(3)",
    "above all": "1e30",
}


def tuned(folder: Path, build_home: Path, n: int = 100_032, **changes: str) -> tuple[SearchResult, MemoryStore]:
    fields = FINE | changes
    (folder / "twice").mkdir()
    (folder / "twice" / "kernel.py").write_text(DEFINITION.format(**fields), encoding="utf-8")
    text = TEMPLATE.format(body=fields["body"]).replace("{{% if", "{% if")
    (folder / "twice" / "kernel.cu.j2").write_text(text, encoding="utf-8")
    kernel, device, store = load_kernel("twice", folder), EmulatorDevice(), MemoryStore()
    with Builder(device.target, build_home) as builder:
        spec = Spec(kernel, (kernel.problem({"n": n}),), search=SearchOptions(trials=1))
        (result,) = search(spec, device, builder, store)
    return result, store


def test_the_right_one_is_saved(tmp_path: Path, build_home: Path) -> None:
    result, store = tuned(tmp_path, build_home)
    assert result.best is not None
    assert result.best.proven
    assert store.bests() == [result.best]


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_one_is_not(fault: str, tmp_path: Path, build_home: Path) -> None:
    result, store = tuned(tmp_path, build_home, **WRONG[fault])
    assert result.best is None
    assert store.bests() == []
    assert set(result.outcomes) == {"wrong_result"}


@pytest.mark.parametrize("bound", BAD_BOUNDS)
def test_a_bound_that_could_accept_anything_is_refused(bound: str, tmp_path: Path, build_home: Path) -> None:
    with pytest.raises(KernelError, match=r"kernel\.py: the reference or the error bound of twice does not hold"):
        tuned(tmp_path, build_home, bound=BAD_BOUNDS[bound])


SHIPPED = {
    "matmul's last band of tiles": (
        "matmul/parts/tiles.cu.j2",
        "min(GROUP, tiles_m - band * GROUP)",
        "min(GROUP, tiles_m)",
        {"group": 8, "block_m": 32, "block_n": 32, "thread_m": 4, "thread_n": 4, "lanes_m": 4, "block_k": 8},
    ),
    "transpose's last band of tiles": (
        "transpose/parts/one_tile.cu.j2",
        "min(BAND, down - band * BAND)",
        "min(BAND, down)",
        {"block_order": "row_bands", "tile_rows": 512, "tile_cols": 16},
    ),
}


@pytest.mark.parametrize("fault", SHIPPED)
def test_a_fault_that_shows_in_many_tiles_only(fault: str, tmp_path: Path, build_home: Path) -> None:
    file, old, new, values = SHIPPED[fault]
    folder = tmp_path / "templates"
    shutil.copytree(templates_dir(), folder)
    text = (folder / file).read_text(encoding="utf-8")
    assert old in text
    (folder / file).write_text(text.replace(old, new), encoding="utf-8")
    kernel = load_kernel(file.split("/")[0], folder)
    device, store = EmulatorDevice(), MemoryStore()
    domains = {name: (value,) for name, value in dict(kernel.configuration(values)).items()}
    problem = kernel.problem(dict.fromkeys(kernel.dimensions, 1024))
    with Builder(device.target, build_home) as builder:
        (result,) = search(Spec(kernel, (problem,), domains), device, builder, store)
    assert result.best is None
    assert store.bests() == []
