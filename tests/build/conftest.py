"""Stand-ins for nvcc."""

import os
import stat
import sys
import time
from pathlib import Path

import pytest

from autotile.build import nvcc as nvcc_module

ANSWERS = """
import sys
if "--version" in sys.argv:
    print("Cuda compilation tools, release VERSION, VVERSION.88")
    sys.exit(0)
if "--list-gpu-code" in sys.argv:
    print("sm_80\\nsm_90")
    sys.exit(0)
"""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Installs a fake nvcc whose compile step is the given Python; returns its path."""
    for name in ("AUTOTILE_NVCC", "CUDA_HOME", "CUDA_PATH", *nvcc_module.ENVIRONMENT_FLAGS):
        monkeypatch.delenv(name, raising=False)

    def install(compile_step: str = "compiled()", version: str = "12.2", answers: str = ANSWERS) -> Path:
        folder = tmp_path / "toolkit" / "bin"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "nvcc"
        compiled = "def compiled(): open(sys.argv[sys.argv.index('-o') + 1], 'w').write('code')\n"
        text = f"#!{sys.executable}\nimport sys\n" + answers.replace("VERSION", version) + compiled + compile_step
        path.write_text(text + "\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        os.utime(path, ns=(time.time_ns(), time.time_ns()))
        monkeypatch.setenv("AUTOTILE_NVCC", str(path))
        return path

    return install
