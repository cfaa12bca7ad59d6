"""The shape of the project: imports go one way, heavy packages have one home each, modules stay small."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import autotile

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "autotile"

LAYERS = [
    {"types", "errors", "assets", "dtypes", "suggest"},
    {"devices", "kernels", "spec"},
    {"store", "space"},
    {"build", "codegen", "sampler"},
    {"measure"},
    {"tuner", "insight"},
    {"report", "runtime", "doctor"},
    {"cli"},
    {"__main__"},
]
RANK = {room: rank for rank, rooms in enumerate(LAYERS) for room in rooms}

HOMES = {
    "pycuda": {"devices/cuda/driver.py"},
    "optuna": {"sampler/feasible.py", "sampler/nearest.py", "sampler/rows.py", "sampler/strategy.py"},
    "jinja2": {"codegen/render.py"},
    "yaml": {"spec/yaml_reader.py", "devices/gpus.py"},
    "platformdirs": {"assets.py"},
}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def imported(path: Path) -> set[str]:
    """Dotted names that a module imports anywhere, also inside functions; not for type checking alone."""
    found: set[str] = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only = [
        node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
    ]
    skipped = {id(child) for node in typing_only for child in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def room(dotted: str) -> str:
    parts = dotted.split(".")
    return parts[1] if len(parts) > 1 and parts[0] == "autotile" else ""


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_down_the_line(path: Path) -> None:
    own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if own == "__init__":
        return  # the public face forwards to the runtime when it is used
    for name in imported(path):
        other = room(name)
        if other in RANK and other != own:
            assert RANK[other] <= RANK[own], f"{own} imports {name}, which stands above it"


@pytest.mark.parametrize("package", HOMES)
def test_a_heavy_package_has_one_home(package: str) -> None:
    users = {
        path.relative_to(PACKAGE).as_posix()
        for path in modules()
        if any(name.split(".")[0] == package for name in imported(path))
    }
    assert users == HOMES[package]


def test_click_and_rich_live_in_the_cli() -> None:
    for path in modules():
        if {name.split(".")[0] for name in imported(path)} & {"click", "rich"}:
            assert path.relative_to(PACKAGE).parts[0] == "cli"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_modules_and_functions_fit(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= 400
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            assert (node.end_lineno or 0) - node.lineno < 70, f"{node.name} does not fit a screen"


def test_public_names_are_complete_and_there() -> None:
    for name in autotile.__all__:
        assert getattr(autotile, name) is not None
    assert set(autotile.__all__) == set(dir(autotile))
    with pytest.raises(AttributeError, match="no attribute 'lod'"):
        autotile.lod  # noqa: B018


@pytest.mark.parametrize("arguments", [["-c", "import autotile"], ["-m", "autotile", "--help"]])
def test_the_face_is_light(arguments: list[str]) -> None:
    """Neither numpy nor anything heavier is imported for `import autotile` and `--help`."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines() if "|" in line}
    assert not loaded & {"numpy", "optuna", "jinja2", "rich", "yaml", "pycuda", "ml_dtypes"}


def test_public_functions_stay_callable_after_every_module_is_imported() -> None:
    """A package of a public function's name would take its place once it is imported."""
    for path in modules():
        dotted = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        assert dotted not in {f"autotile.{name}" for name in autotile.__all__}
