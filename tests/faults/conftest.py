"""What the fault tests share."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fakes import write_kernel

from autotile.kernels import Kernel
from autotile.kernels.loader import read_folder


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Kernel:
    """Without presets, so that a search begins where its sampler does."""
    return replace(read_folder(write_kernel(tmp_path_factory.mktemp("kernels")) / "walk"), presets={})


@pytest.fixture
def no_second_opinion(monkeypatch: pytest.MonkeyPatch) -> None:
    """The emulator has nothing to say of a stand-in's winners, and takes a second to build each."""
    monkeypatch.setenv("AUTOTILE_CXX", "/nowhere/g++")
