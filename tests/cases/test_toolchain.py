"""What the machine lacks is said with its own reason, never as something else."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from autotile.cli import main

BROKEN = {
    "another numpy": (  # inducer/pycuda#450
        "ValueError('numpy.dtype size changed, may indicate binary incompatibility')",
        "pycuda import failed: numpy.dtype size changed",
    ),
    "no driver": (
        "ImportError('libcuda.so.1: cannot open shared object file')",
        "pycuda import failed: libcuda.so.1: cannot open shared object file",
    ),
    "a part is gone": ("ModuleNotFoundError('No module named pytools', name='pytools')", "No module named pytools"),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_pycuda_that_does_not_import_is_not_taken_for_a_machine_without_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    error, says = BROKEN[how]
    (tmp_path / "pycuda").mkdir()
    (tmp_path / "pycuda" / "__init__.py").write_text("")
    (tmp_path / "pycuda" / "driver.py").write_text(f"raise {error}")
    monkeypatch.syspath_prepend(str(tmp_path))
    ours = lambda: [name for name in sys.modules if name.split(".")[0] == "pycuda"]  # noqa: E731
    for name in ours():
        monkeypatch.delitem(sys.modules, name)
    for arguments, code in ((["--device", "cuda"], 3), (["--dry-run"], 0)):  # `auto` goes on, and says why
        with pytest.raises(SystemExit) as left:
            main(["search", "matmul-quick", *arguments])
        assert left.value.code == code
        said = capsys.readouterr().err
        assert says in said
        assert "not installed" not in said
        assert "Traceback" not in said
    for name in ours():
        sys.modules.pop(name)
