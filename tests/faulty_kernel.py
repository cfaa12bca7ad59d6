"""A kernel folder whose variants go wrong as their parameter `fault` says, on the emulator and on a GPU."""

from __future__ import annotations

from pathlib import Path

DEFINITION = """
import numpy as np
from autotile.kernels import Input, Kernel, LaunchPlan, Output, Parameter, Size

FAULTS = ("none", "nothing", "wrong", "half", "nan", "race", "outside", "illegal", "misaligned", "trap", "resources",
          "hang", "does_not_compile")

KERNEL = Kernel(
    name="faulty", doc="y[i] = x[i] + x[i ^ 1], or x[i] alone at an odd end", dimensions=("n",), dtypes=("float32",),
    arguments=(Input("x", ("n",)), Output("y", ("n",)), Size("n")),
    parameters=(
        Parameter("width", (128, 256, 512), 256, "threads a block"),
        Parameter("fault", FAULTS, "none", "what goes wrong"),
    ),
    launch=LaunchPlan(("ceil_div(problem.n, width)",), ("1024 if fault == 'resources' else width",)),
    reference=lambda inputs, problem: {"y": sums(inputs["x"].astype(np.float64))},
    error_bound=lambda inputs, problem: {"y": 2.0**-23 * sums(np.abs(inputs["x"].astype(np.float64))) + 2.0**-148},
    flops="problem.n", bytes="8 * problem.n",
    trace_sizes=("4 * width",),
    check_sizes=((2,), (34,), (66,), (1000,), (4098,), (100_000,)),
)


def sums(x):
    even = np.append(x, 0.0)[: len(x) + len(x) % 2].reshape(-1, 2)
    return x + even[:, ::-1].ravel()[: len(x)]
"""

TEMPLATE = """\
#define WIDTH {{ width }}

extern "C" __global__ void {{ entry }}(const float* x, float* y, int n) {
    __shared__ float tile[WIDTH];
    const int t = threadIdx.x, i = blockIdx.x * WIDTH + t;
{% if fault == 'nothing' %}
    return;
{% elif fault == 'illegal' %}
    if (i == 5) *reinterpret_cast<float*>(64) = 1.0f;
{% elif fault == 'misaligned' %}
    if (i == 5) y[0] = *reinterpret_cast<const float*>(reinterpret_cast<const char*>(x) + 2);
{% elif fault == 'trap' %}
    if (i == 5) asm volatile("trap;");
{% elif fault == 'hang' %}
    for (const volatile float* word = x; i == 5 && word[0] == word[0];) {}
{% elif fault == 'resources' %}
    // Two hundred values of each thread stay alive, so that 1024 threads have too few registers.
    float kept[200];
    #pragma unroll
    for (int j = 0; j < 200; ++j) kept[j] = x[(i + j) % n] * j;
    #pragma unroll
    for (int j = 0; j < 200; ++j) if (kept[j] * kept[199 - j] == 1e30f) y[j % n] = kept[j];
{% elif fault == 'does_not_compile' %}
    this is not CUDA;
{% endif %}
    if (t < WIDTH && i < n) tile[t] = x[i];
{% if fault != 'race' %}
    __syncthreads();
{% endif %}
    if (t >= WIDTH || i >= n) return;
    const float sum = tile[t] + ((i ^ 1) < n ? tile[t ^ 1] : 0.0f);
{% if fault == 'wrong' %}
    y[i] = i == n - 1 ? sum + 1.0f : sum;
{% elif fault == 'half' %}
    if (i % 64 < 63) y[i] = sum;
{% elif fault == 'nan' %}
    y[i] = i == n / 2 ? sum / (sum - sum) * 0.0f : sum;
{% elif fault == 'outside' %}
    y[i + 1] = sum;
    if (i == 0) y[0] = sum;
{% else %}
    y[i] = sum;
{% endif %}
}
"""

SEARCH = """\
kernel: faulty
problems: [{{n: {n}}}]
parameters: {{width: {widths}, fault: [{faults}]}}
search: {{sampler: grid, trials: 100, launch_limit: {limit}}}
"""


def write_faulty(folder: Path, faults: str, n: int, widths: str = "[256]", limit: str = "2s") -> Path:
    """The kernel's folder under `folder`, and a search file beside it, whose path is returned."""
    (folder / "faulty").mkdir(exist_ok=True)
    (folder / "faulty" / "kernel.py").write_text(DEFINITION, encoding="utf-8")
    (folder / "faulty" / "kernel.cu.j2").write_text(TEMPLATE, encoding="utf-8")
    file = folder / f"{faults.replace(', ', '-')[:40]}-{n}.yaml"
    file.write_text(SEARCH.format(faults=faults, n=n, widths=widths, limit=limit), encoding="utf-8")
    return file
