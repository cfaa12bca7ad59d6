"""`autotile doctor` tells, and never falls over."""

import sys
from pathlib import Path

import pytest

from autotile import doctor


def found(name: str) -> doctor.Finding:
    return next(finding for finding in doctor.diagnose() if finding.name == name)


def test_every_failure_has_a_fix():
    findings = doctor.diagnose()
    assert {"Python", "numpy", "optuna", "store", "pycuda", "nvcc", "templates"} <= {f.name for f in findings}
    for finding in findings:
        assert finding.detail
        assert finding.ok is not False or finding.fix, finding


def test_a_broken_pycuda_is_shown_with_its_reason(tmp_path, monkeypatch):
    package = tmp_path / "pycuda"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "driver.py").write_text("raise ImportError('numpy.core.multiarray failed to import')")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name.split(".")[0] == "pycuda"]:
        monkeypatch.delitem(sys.modules, name)
    line = found("pycuda")
    assert line.ok is False
    assert line.detail == "pycuda import failed: numpy.core.multiarray failed to import"
    for name in [name for name in sys.modules if name.split(".")[0] == "pycuda"]:
        monkeypatch.delitem(sys.modules, name)


def test_a_missing_pycuda_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pycuda", None)
    monkeypatch.delitem(sys.modules, "pycuda.driver", raising=False)
    assert "pip install" in found("pycuda").fix


def test_a_store_that_cannot_be_written(tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("AUTOTILE_HOME", str(blocked))
    line = found("store")
    assert line.ok is False
    assert "AUTOTILE_HOME" in line.fix


def test_a_bug_in_a_check_is_a_finding(monkeypatch: pytest.MonkeyPatch):
    def broken():
        raise RuntimeError("boom")

    monkeypatch.setattr(doctor, "_nvrtc", broken)
    assert "boom" in found("NVRTC").detail


def test_nvrtc_is_shown_with_what_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AUTOTILE_NVRTC", str(tmp_path / "gone.so"))
    line = found("NVRTC")
    assert line.ok is False
    assert "gone.so: not there" in line.detail
    assert "nvidia-cuda-nvrtc" in line.fix


@pytest.mark.parametrize("compilers", [(), ("nvcc",), ("NVRTC",)])
def test_a_gpu_needs_one_of_its_compilers(compilers: tuple[str, ...]):
    names = ("Python", "numpy", "optuna", "templates", "store", "cuda:0", *compilers)
    assert doctor.can_work([doctor.Finding(name, True, "fine") for name in names]) is bool(compilers)


def test_compilers_that_hang_are_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "hangs"
    path.write_text("#!/bin/sh\nsleep 3600\n")
    path.chmod(0o755)
    monkeypatch.setattr("autotile.build.process.ASK_LIMIT_S", 0.5)
    for name, variable in (("nvcc", "AUTOTILE_NVCC"), ("C++ compiler", "AUTOTILE_CXX")):
        monkeypatch.setenv(variable, str(path))
        line = found(name)
        assert line.ok is False
        assert f"`{path} --version`" in line.detail
        assert "within 0.5 s" in line.detail
        assert variable in line.fix
