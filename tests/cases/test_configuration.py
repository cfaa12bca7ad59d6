"""What people write by mistake, and what YAML, Python and numpy make of it: a clear word, never another meaning."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes import DEFINITION, TEMPLATE, write_kernel

from autotile.codegen import render
from autotile.codegen.render import FIXED_NAMES
from autotile.errors import EXIT_USAGE, KernelError, SpecError
from autotile.kernels import Kernel, Parameter
from autotile.kernels.declarations import RESERVED
from autotile.kernels.loader import read_folder
from autotile.spec import load_specs


def walk(root: Path, *edits: tuple[str, str], template: str = TEMPLATE) -> Kernel:
    """The kernel `walk`, its kernel.py edited."""
    definition = DEFINITION
    for old, new in edits:
        assert old in definition
        definition = definition.replace(old, new)
    return read_folder(write_kernel(root, definition, template) / "walk")


# ---- booleans (yaml/pyyaml#613) -------------------------------------------------------------------------------------

DERIVED = (
    'rules=(Rule("mode',
    'derived=(Derived("broad", "width > 64"),), traits=(Trait("even", "problem.n % 2 == 0", ""),), rules=(Rule("mode',
)
IMPORTED = ("import Input", "import Derived, Trait, Input")


@pytest.mark.parametrize("hint", [True, False])
def test_booleans_of_every_origin_are_written_as_cuda_has_them(tmp_path: Path, hint: bool) -> None:
    line = "#if {{ hint }} || {{ broad }} || {{ even }} || {{ not hint and steps == 1 }} || {{ 1 if hint else 0 }}\n"
    kernel = walk(tmp_path, DERIVED, IMPORTED, template=line + TEMPLATE)
    text = render(kernel, kernel.problem({"n": 7}), kernel.configuration({"hint": hint})).text
    words = ("true", "false", "false", "false", "1") if hint else ("false", "false", "false", "true", "0")
    assert text.startswith(f"#if {' || '.join(words)}\n")


@pytest.mark.parametrize(
    "joined", ['{{ hint ~ "" }}', '{{ "%s" % hint }}', "{{ [hint, steps] | join(', ') }}", "{{ [hint] }}"]
)
def test_a_boolean_joined_to_text_is_refused_with_its_line(tmp_path: Path, joined: str) -> None:
    kernel = walk(tmp_path, template=TEMPLATE.replace("out[i] = in[i];", f"out[i] = in[i] * {joined};"))
    with pytest.raises(
        KernelError, match=r"kernel\.cu\.j2: line 6 of the generated text has Python's False.*\{\{ name"
    ):
        render(kernel, kernel.problem({"n": 7}), kernel.configuration())


def test_the_words_may_stand_in_the_template_itself(tmp_path: Path) -> None:
    kernel = walk(tmp_path, template=TEMPLATE + "enum { False, True };\n")
    assert render(kernel, kernel.problem({"n": 7}), kernel.configuration()).text.endswith("enum { False, True };\n")


# ---- names (KernelTuner/kernel_tuner#45) ----------------------------------------------------------------------------


def test_no_parameter_takes_the_place_of_a_name_that_templates_have() -> None:
    assert FIXED_NAMES <= RESERVED


@pytest.mark.parametrize("name", ["dtype_header", "ceil_div", "min", "none", "loop", "range", "unsigned", "template"])
def test_names_that_mean_something_already(name: str) -> None:
    with pytest.raises(KernelError, match=f"parameter '{name}': the name is reserved"):
        Parameter(name, (1, 2), 1, "")


@pytest.mark.parametrize("values", [(-1, 1), (1, 2**31), (1, 2**70)], ids=str)
def test_values_that_are_no_int_of_cuda(values: tuple[int, ...]) -> None:
    with pytest.raises(KernelError, match="'tile': integers are 0 to 2147483647"):
        Parameter("tile", values, 1, "")


def test_pairs_are_no_values(tmp_path: Path) -> None:
    """optuna/optuna#2341: as choices they come back as something else."""
    write_kernel(tmp_path)
    file = tmp_path / "pairs.yaml"
    file.write_text("kernel: walk\nproblems: [{n: 8}]\nparameters:\n  width: [[8, 8], [16, 16]]\n")
    with pytest.raises(
        SpecError, match=r"pairs\.yaml:4:11: parameter width takes an integer, not \[8, 8\]$"
    ) as refused:
        load_specs(file, templates=tmp_path)
    assert refused.value.exit_code == EXIT_USAGE


# ---- what a kernel declares -----------------------------------------------------------------------------------------

GRID = 'grid=("ceil_div(problem.n, width * steps)",)'
BLOCK = 'block=("width",)'
BAD_DECLARATIONS = {
    "a block that is text": (BLOCK, 'block=("mode",)', "launch block: 'mode' is 'plain', and a number is needed"),
    "a grid that is text": (GRID, 'grid=("mode",)', "launch grid: 'mode' is 'plain', and a number is needed"),
    "a quotient": (BLOCK, 'block=("width / 3",)', "'width / 3' is 10.66.* a whole number is needed: use // or %"),
    "no tuple": (BLOCK, 'block="width"', "block must be a tuple of one to three expressions, not 'width'"),
    "no side": (BLOCK, "block=()", "block must be a tuple of one to three"),
    "four sides": (BLOCK, 'block=("width", "1", "1", "1")', "block must be a tuple of one to three"),
    "shared memory that is text": (
        "static_shared_bytes=\"width * steps * problem.itemsize if mode == 'staged' else 0\"",
        'static_shared_bytes="mode"',
        "'static_shared_bytes' is 'plain', and a number is needed",
    ),
    "work that is text": ('flops="0"', 'flops="problem.dtype"', "flops: 'problem.dtype' is 'float32'"),
    "a traced size that is text": ('trace_sizes=("width * steps",)', 'trace_sizes=("mode",)', "trace_sizes: 'mode' is"),
    "a rule that is text": ("mode == 'plain' or steps > 1", "mode", "'mode' is text, and a yes or no is needed"),
    "a lone dimension": ('dimensions=("n",)', 'dimensions="n"', "dimensions must be a tuple, such as"),
    "no dtype": ('dtypes=("float32", "float64")', "dtypes=()", "dtypes is empty"),
    "a lone size": ("check_sizes=((1,), (33,), (1000,))", "check_sizes=(1,)", "want 1 sizes, not 1"),
    "a size of zero": ("check_sizes=((1,), (33,), (1000,))", "check_sizes=((0,),)", "n must be an integer from 1"),
    "nothing to check": (', Output("out", ("n",))', "", "no argument is an Output"),
}


@pytest.mark.parametrize("fault", BAD_DECLARATIONS)
def test_a_declaration_that_cannot_be_is_refused_when_it_is_read(tmp_path: Path, fault: str) -> None:
    old, new, says = BAD_DECLARATIONS[fault]
    with pytest.raises(KernelError, match=rf"^{tmp_path}/walk/kernel\.py.*{says}"):
        walk(tmp_path, (old, new))
