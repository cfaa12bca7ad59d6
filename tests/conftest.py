"""What all tests share: a home of their own, and nothing of the user's environment."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parents[1]

# How long an example takes says how busy the machine is.
settings.register_profile("any_machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any_machine")

# A shell has what it starts in the background ignore interrupts, nohup hangups, and what is started here inherits that.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, handler)


@pytest.fixture(autouse=True)
def _own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records go to a fresh folder; binaries are shared by the session, since they are keyed by all that matters."""
    for name in [name for name in os.environ if name.startswith("AUTOTILE_")]:
        if name not in ("AUTOTILE_CXX", "AUTOTILE_NVCC", "AUTOTILE_NVRTC", "AUTOTILE_NVDISASM"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AUTOTILE_HOME", str(tmp_path_factory.mktemp("home")))


@pytest.fixture(autouse=True)
def shipped(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder in place of the results that ship: what is served is what a test saved."""
    folder = tmp_path_factory.mktemp("tuned")
    monkeypatch.setattr("autotile.assets.tuned_dir", lambda: folder)
    return folder


@pytest.fixture(scope="session")
def build_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the session's binaries are kept."""
    return tmp_path_factory.mktemp("builds")
