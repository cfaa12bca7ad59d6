"""`autotile doctor` tells, and never falls over."""

import sys

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
