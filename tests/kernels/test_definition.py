"""What a kernel folder may say, and what it is told when it errs: before anything is compiled, with file and line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotile.build import Builder
from autotile.codegen import render
from autotile.devices.emulator.device import EmulatorDevice
from autotile.devices.gpus import find_gpu
from autotile.errors import ConfigurationError, KernelError, UsageError
from autotile.kernels import Kernel, Parameter, kernel_folders, load_kernel
from autotile.kernels.loader import DEFINITION, TEMPLATE
from autotile.measure import make_variant, make_workload
from autotile.measure.variant import proofs_of
from autotile.measure.workload import KINDS
from autotile.space import build_space
from autotile.spec import SearchOptions, Spec
from autotile.store.memory import MemoryStore
from autotile.tuner import search

KERNEL_PY = """\
from autotile.kernels import Derived, Input, Kernel, LaunchPlan, Output, Parameter, Rule, Size, Trait

KERNEL = Kernel(
    name="vector_copy",
    doc="out[i] = in[i]",
    dimensions=("n",),
    dtypes=("float32", "int16"),
    arguments=(Input("in", ("n",)), Output("out", ("n",)), Size("n")),
    parameters=(
        Parameter("width", (32, 64, 96), 64, "threads a block"),
        Parameter("each", (1, 2, 4), 1, "elements a thread, side by side"),
    ),
    derived=(Derived("span", "width * each"),),
    rules=(Rule("span <= 256", "a block of {span} elements is more than 256"),),
    traits=(Trait("whole", "problem.n % span == 0", "the last block is full"),),
    launch=LaunchPlan(grid=("ceil_div(problem.n, span)",), block=("width",)),
    reference=lambda inputs, problem: {"out": inputs["in"].copy()},
    error_bound=lambda inputs, problem: {"out": 0.0},
    flops="0",
    bytes="2 * problem.n * problem.itemsize",
    check_sizes=((1,), (37,), (1000,)),
    trace_sizes=("span",),
)
"""
KERNEL_CU = """\
extern "C" __global__ void __launch_bounds__({{ threads }})
{{ entry }}(const {{ ctype }}* in, {{ ctype }}* out, int n) {
    const int first = (blockIdx.x * {{ width }} + threadIdx.x) * {{ each }};
    for (int i = first; i < first + {{ each }}; i++)
        {% if not whole %}if (i < n) {% endif %}out[i] = in[i];
}
"""
Edits = Sequence[tuple[str, str]]


def folder(root: Path, python: Edits = (), template: Edits = (), name: str = "vector_copy") -> Path:
    """A folder of kernels with one in it: a right one, edited."""
    made = root / name
    made.mkdir()
    for file, text, edits in ((DEFINITION, KERNEL_PY, python), (TEMPLATE, KERNEL_CU, template)):
        for old, new in edits:
            assert old in text
            text = text.replace(old, new, 1)
        (made / file).write_text(text, encoding="utf-8")
    return root


def use(kernel: Kernel) -> None:
    """All that comes before a compile."""
    problem = kernel.problem(dict.fromkeys(kernel.dimensions, 1000))
    build_space(kernel, problem, EmulatorDevice().info)
    kernel.launch_of(problem, kernel.configuration())
    render(kernel, problem, kernel.configuration())


# ---- parameters -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["grid", "block", "blockDim", "threadIdx", "float", "int", "class", "lambda", "1x", "tile-size", "tile size", "",
     "threads", "shared_bytes", "problem", "device", "entry", "dtype"],
)  # fmt: skip
def test_names_that_no_parameter_can_have(name: str) -> None:
    with pytest.raises(KernelError, match=r"the name is reserved|must be an identifier"):
        Parameter(name, (1, 2), 1, "")


@pytest.mark.parametrize(
    ("values", "default", "says"),
    [
        ((1, 2), 3, "default 3 is not among"),
        ((1, 2), "1", "default '1' is not among"),
        ((1, "two"), 1, "all integers, all booleans or all names"),
        ((1, True), 1, "all integers, all booleans or all names"),
        ((1.0, 2.0), 1.0, "all integers, all booleans or all names"),
        ((), 1, "all integers, all booleans or all names"),
        ((1, 2, 1), 1, "listed twice"),
    ],
)
def test_values_that_no_parameter_can_have(values: tuple[Any, ...], default: Any, says: str) -> None:
    with pytest.raises(KernelError, match=says) as refused:
        Parameter("tile", values, default, "")
    assert "'tile'" in str(refused.value)


@pytest.mark.parametrize("searched", [(1, 3), (2, 2)], ids=["not a value", "twice"])
def test_what_is_searched_are_some_of_the_values(searched: tuple[int, ...]) -> None:
    with pytest.raises(KernelError, match=r"'tile': what is searched must be some of \[1, 2\], each once"):
        Parameter("tile", (1, 2), 1, "", searched)


def test_a_search_that_does_not_name_a_parameter_takes_what_is_searched() -> None:
    """The default may be another; a search that names the parameter takes what it says."""
    matmul = load_kernel("matmul")
    problem = matmul.problem({"m": 64, "n": 64, "k": 64})
    narrow = {p.name: p.domain[:1] for p in matmul.parameters if p.name not in ("staging", "order")}
    assert matmul.parameter("staging").domain == ("static", "dynamic", "skinny")
    assert build_space(matmul, problem, find_gpu("h200"), narrow).domains[0] == ("static", "dynamic", "skinny")
    named = build_space(matmul, problem, find_gpu("h200"), narrow | {"staging": ("none",)})
    assert named.domains[0] == ("none",)


@pytest.mark.parametrize("value", [True, "32", 32.0, None, -1, 2**31])
def test_a_value_of_another_type_is_no_configuration(value: object, tmp_path: Path) -> None:
    kernel = load_kernel("vector_copy", [folder(tmp_path)])
    with pytest.raises(ConfigurationError, match="width"):
        kernel.configuration({"width": value})


def test_an_unknown_parameter_is_named_with_what_may_be_meant(tmp_path: Path) -> None:
    kernel = load_kernel("vector_copy", [folder(tmp_path)])
    with pytest.raises(ConfigurationError, match=r"no parameter 'widht'.*width"):
        kernel.configuration({"widht": 32})


# ---- folders --------------------------------------------------------------------------------------------------------

SECOND = 'Parameter("each"'
TEMPLATE_FAULTS: dict[str, tuple[Edits, int, str]] = {
    "an undefined variable": ([("{{ width }}", "{{ widht }}")], 3, "widht"),
    "an undefined variable in a branch not taken": (
        [("{{ width }}", "{% if each > 4 %}{{ widht }}{% endif %}")],
        3,
        "widht",
    ),
    "an undefined attribute": ([("{{ width }}", "{{ width.of.block }}")], 3, "of"),
    "an unclosed block": ([("{% endif %}", "")], 5, "endif"),
    "an unknown tag": ([("{% if not whole %}", "{% unless whole %}")], 5, "unless"),
    "an unclosed expression": ([("{{ each }};", "{{ each };")], 3, "'}'"),
    "unsafe access": ([("{{ width }}", "{{ ().__class__ }}{{ width }}")], 3, "unsafe"),
}


@pytest.mark.parametrize("fault", TEMPLATE_FAULTS)
def test_a_fault_of_the_template_has_file_and_line(fault: str, tmp_path: Path) -> None:
    edits, line, says = TEMPLATE_FAULTS[fault]
    kernel = load_kernel("vector_copy", [folder(tmp_path, template=edits)])
    with pytest.raises(KernelError) as refused:
        use(kernel)
    assert str(refused.value).startswith(f"{tmp_path / 'vector_copy' / TEMPLATE}:{line}: ")
    assert says in str(refused.value)


def test_an_error_of_python_in_the_template_has_file_and_line(tmp_path: Path) -> None:
    kernel = load_kernel("vector_copy", [folder(tmp_path, template=[("{{ width }}", "{{ width // 0 }}")])])
    with pytest.raises(KernelError, match=rf"{TEMPLATE}:3: "):
        use(kernel)


@pytest.mark.parametrize(
    "edits",
    [
        [(SECOND, f'Parameter("deep", (1, 2), 1, ""), {SECOND}')],
        [(SECOND, f'Parameter("deep", (1, 2), 1, ""), {SECOND}'), ("Rule(", 'Rule("deep < 3", ""), Rule(')],
    ],
    ids=["by nothing", "by a rule alone"],
)
def test_a_parameter_that_changes_nothing_is_an_error(edits: Edits, tmp_path: Path) -> None:
    kernel = load_kernel("vector_copy", [folder(tmp_path, edits)])
    with pytest.raises(KernelError, match=r"nothing uses deep") as refused:
        use(kernel)
    assert str(tmp_path / "vector_copy" / TEMPLATE) in str(refused.value)


@pytest.mark.parametrize(
    "edits",
    [
        [("ceil_div(problem.n, span)", "ceil_div(problem.m, span)")],
        [('"width * each"', '"widht * each"')],
        [('"span <= 256"', '"spam <= 256"')],
        [('"problem.n % span == 0"', '"problem.n % spam == 0"')],
    ],
    ids=["launch", "derived", "rule", "trait"],
)
def test_an_unknown_name_in_an_expression_is_named(edits: Edits, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=rf"{DEFINITION}: .*unknown name '(problem\.m|widht|spam)' \(did you mean"):
        use(load_kernel("vector_copy", [folder(tmp_path, edits)]))


def test_a_preset_is_checked_when_it_is_read(tmp_path: Path) -> None:
    edits = [('flops="0"', 'flops="0", presets={"wide": {"widht": 96}}')]
    with pytest.raises(KernelError, match=rf"{DEFINITION}:\d+: .*widht.*did you mean 'width'"):
        load_kernel("vector_copy", [folder(tmp_path, edits)])


def test_two_things_of_one_name_are_an_error(tmp_path: Path) -> None:
    for number, edit in enumerate([('Derived("span"', 'Derived("each"'), ('Trait("whole"', 'Trait("span"')]):
        root = tmp_path / str(number)
        root.mkdir()
        with pytest.raises(KernelError, match=rf"{DEFINITION}:\d+: .*declared twice"):
            load_kernel("vector_copy", [folder(root, [edit])])


def test_a_syntax_error_of_kernel_py_has_its_line(tmp_path: Path) -> None:
    with pytest.raises(KernelError, match=rf"{DEFINITION}:3: "):
        load_kernel("vector_copy", [folder(tmp_path, [("KERNEL = ", "KERNEL = = ")])])


@pytest.mark.parametrize(
    "edit",
    [
        ("KERNEL = ", "import no_such_package\nKERNEL = "),
        ('doc="out[i] = in[i]",', "doc=undefined,"),
        ('bytes="2 * problem.n * problem.itemsize",', ""),
    ],
    ids=["ImportError", "NameError", "TypeError"],
)
def test_an_exception_of_kernel_py_has_its_line(edit: tuple[str, str], tmp_path: Path) -> None:
    with pytest.raises(KernelError, match=rf"{DEFINITION}:\d+: "):
        load_kernel("vector_copy", [folder(tmp_path, [edit])])


def test_folders_that_are_no_kernels(tmp_path: Path) -> None:
    with pytest.raises(KernelError, match=r"called 'vector_copy' but its folder 'renamed'"):
        load_kernel("renamed", [folder(tmp_path, name="renamed")])
    folder(tmp_path)
    with pytest.raises(KernelError, match=r"no kernel 'vector_cop' \(did you mean 'vector_copy'\?\)"):
        load_kernel("vector_cop", [tmp_path])
    (tmp_path / "vector_copy" / TEMPLATE).unlink()
    with pytest.raises(KernelError, match=rf"{TEMPLATE} is missing"):
        load_kernel("vector_copy", [tmp_path])
    (tmp_path / "vector_copy" / DEFINITION).write_text("KERNEL = 3\n")
    with pytest.raises(KernelError, match=r"must define KERNEL"):
        load_kernel("vector_copy", [tmp_path])
    with pytest.raises(KernelError, match="not a folder"):
        kernel_folders([tmp_path / "none"])


# ---- problems -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, -1, 1.0, 3.5, True, False, "4", None, 2**31, np.float32(4)])
@pytest.mark.parametrize("name", kernel_folders())
def test_sizes_that_no_problem_has(name: str, size: object) -> None:
    kernel = load_kernel(name)
    sizes: dict[str, object] = dict.fromkeys(kernel.dimensions, 16)
    sizes[kernel.dimensions[-1]] = size
    with pytest.raises(UsageError, match=rf"{name}: {kernel.dimensions[-1]} must be an integer from 1 to 2147483647"):
        kernel.problem(sizes)


@pytest.mark.parametrize("name", kernel_folders())
def test_problems_that_a_kernel_does_not_have(name: str) -> None:
    kernel = load_kernel(name)
    sizes = dict.fromkeys(kernel.dimensions, np.int64(16))
    assert dict(kernel.problem(sizes).sizes) == dict.fromkeys(kernel.dimensions, 16)
    with pytest.raises(UsageError, match="no dimension 'depth'"):
        kernel.problem({**sizes, "depth": 1})
    with pytest.raises(UsageError, match=f"also needs {kernel.dimensions[0]}"):
        kernel.problem(dict.fromkeys(kernel.dimensions[1:], 16))
    with pytest.raises(UsageError, match="no dtype 'float23'"):
        kernel.problem(sizes, "float23")


@pytest.mark.parametrize(
    ("name", "dtype"), [(name, dtype) for name in kernel_folders() for dtype in load_kernel(name).dtypes]
)
def test_reference_and_bound_have_the_outputs_shape(name: str, dtype: str) -> None:
    kernel = load_kernel(name)
    problems = kernel.proof_problems(kernel.problem(dict.fromkeys(kernel.dimensions, 1), dtype))
    assert len(problems) == len(kernel.check_sizes) or not kernel.check_sizes
    for problem in problems:
        workload = make_workload(kernel, problem)
        types = {array.name: kernel.element_of(array, problem).numpy for array in kernel.outputs}
        assert set(workload.reference) == set(workload.bound) == set(workload.outputs)
        for output, (shape, kind) in workload.outputs.items():
            bound = np.asarray(workload.bound[output])
            assert workload.reference[output].shape == shape
            assert bound.shape in ((), shape)
            assert (bound >= 0).all()
            exact = bound.ndim == 0 and not bound
            assert workload.reference[output].dtype == (kind if exact else np.float64)
            assert kind == types[output]
        assert kernel.flops_of(problem) >= 0
        assert kernel.bytes_of(problem) > 0


# ---- a new kernel ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [76_800, 100_001])
def test_a_new_folder_is_searched_with_no_other_edit(tmp_path: Path, build_home: Path, n: int) -> None:
    kernel = load_kernel("vector_copy", [folder(tmp_path)])
    device, store = EmulatorDevice(), MemoryStore()
    problems = tuple(kernel.problem({"n": n}, dtype) for dtype in kernel.dtypes)
    spec = Spec(kernel, problems, search=SearchOptions(trials=100))
    with Builder(device.target, build_home) as builder:
        results = search(spec, device, builder, store)
        again = search(spec, device, builder, store)
    assert [(result.stopped_by, result.space_size, result.space_total) for result in results] == [
        ("exhausted", 8, 9)
    ] * 2
    for result, problem in zip(results, problems, strict=True):
        assert result.outcomes == {"ok": 8}, [record.message for record in result.records]
        assert result.best is not None
        assert store.best("vector_copy", problem, device.info.name) == result.best
        assert result.best.identity.estimated
    assert [result.new_trials for result in again] == [0, 0]


def test_a_new_folder_that_is_wrong_saves_nothing(tmp_path: Path, build_home: Path) -> None:
    """The last element of each block is left out: no trial is right, and none is kept as the best."""
    wrong = [("i < first + {{ each }}; i++", "i < first + {{ each }} - (threadIdx.x == {{ width }} - 1); i++")]
    kernel = load_kernel("vector_copy", [folder(tmp_path, template=wrong)])
    device, store = EmulatorDevice(), MemoryStore()
    problem = kernel.problem({"n": 100_000})
    with Builder(device.target, build_home) as builder:
        (result,) = search(Spec(kernel, (problem,), search=SearchOptions(trials=3)), device, builder, store)
    assert result.outcomes == {"wrong_result": 3}
    assert result.best is None
    assert store.best("vector_copy", problem, device.info.name) is None


def test_a_wrong_folder_without_sizes_of_its_own_saves_nothing(tmp_path: Path, build_home: Path) -> None:
    wrong = [("out[i] = in[i];", "if (threadIdx.x < 90) out[i] = in[i];")]
    sizes = [("    check_sizes=((1,), (37,), (1000,)),\n", ""), ('    trace_sizes=("span",),\n', "")]
    kernel = load_kernel("vector_copy", [folder(tmp_path, sizes, wrong)])
    device, store = EmulatorDevice(), MemoryStore()
    point = kernel.configuration({"width": 96})
    spec = Spec(kernel, (kernel.problem({"n": 100_000}),), points={"wide": point})
    with Builder(device.target, build_home) as builder:
        (result,) = search(spec, device, builder, store)
    assert result.best is None


@pytest.mark.parametrize("name", kernel_folders())
def test_a_winner_proves_itself_on_six_other_problems_at_least(name: str) -> None:
    """Odd, tiny, tall and deep ones, two seeds and three kinds of data."""
    kernel = load_kernel(name)
    problem = kernel.problem(dict.fromkeys(kernel.dimensions, 4096))
    proofs = proofs_of(make_variant(kernel, problem, kernel.configuration()), EmulatorDevice().info)
    sizes = {tuple(size for _, size in proof.variant.problem.sizes) for proof in proofs}
    assert len(sizes) >= 6
    assert (4096,) * len(kernel.dimensions) not in sizes
    assert any(all(size % 2 for size in some) for some in sizes)
    assert any(max(some) <= 64 for some in sizes)
    assert any(max(some) >= 4 * min(some) for some in sizes)
    assert all(len({inputs.seed for inputs in proof.inputs}) >= 2 for proof in proofs)
    assert {inputs.kind for proof in proofs for inputs in proof.inputs} == set(KINDS)
