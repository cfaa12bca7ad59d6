"""Stand-ins for nvcc and for NVRTC's workers."""

import os
import stat
import sys
import time
from pathlib import Path

import pytest

from autotile.build import nvcc as nvcc_module
from autotile.build import nvrtc as nvrtc_module

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


WORKER = """
import json, os, signal, sys, time
def answer(fields, *parts):
    head = json.dumps({**fields, "lengths": [len(part) for part in parts]}).encode()
    sys.stdout.buffer.write(b"\\0autotile " + head + b"\\n" + b"".join(parts))
    sys.stdout.buffer.flush()
def compiled(log="", code=b"code"):
    answer({"status": "NVRTC_SUCCESS", "reads_data": True}, log.encode(), code)
def refused(status, log=""):
    answer({"status": status, "reads_data": True}, log.encode(), b"")
HELLO
while header := sys.stdin.buffer.readline():
    fields = json.loads(header)
    text = sys.stdin.buffer.read(fields["lengths"][0]).decode()
"""
READY = 'answer({"version": "VERSION", "archs": ["sm_80", "sm_90"]})'


@pytest.fixture
def fake_nvrtc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Installs a fake worker whose compile step is the given Python; returns the path of its library."""
    for name in ("AUTOTILE_NVCC", "CUDA_HOME", "CUDA_PATH", *nvrtc_module.ENVIRONMENT_FLAGS):
        monkeypatch.delenv(name, raising=False)
    library, worker = tmp_path / "cuda" / "lib64" / "libnvrtc.so.12", tmp_path / "worker.py"
    headers = tmp_path / "cuda" / "include"
    for folder in (library.parent, headers):
        folder.mkdir(parents=True)
    (headers / nvrtc_module.HEADER).write_text("")
    (headers / "cuda_runtime_api.h").write_text("#define CUDART_VERSION  12020\n")

    def install(compile_step: str = "compiled()", version: str = "12.2.140", hello: str = READY) -> Path:
        lines = "".join(f"    {line}\n" for line in compile_step.splitlines())
        worker.write_text(WORKER.replace("HELLO", hello.replace("VERSION", version)) + lines)
        library.write_text("")
        os.utime(library, ns=(time.time_ns(), time.time_ns()))
        monkeypatch.setattr(nvrtc_module, "WORKER", worker)
        monkeypatch.setenv("AUTOTILE_NVRTC", str(library))
        return library

    return install
