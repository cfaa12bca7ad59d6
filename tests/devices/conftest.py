"""A compiler, and programs built once a session, for the tests of the emulator."""

from __future__ import annotations

from pathlib import Path

import pytest
from emulated import Build

from autotile.devices.emulator import EmulatedProgram, HostToolchain, compile_host, find_host_compiler
from autotile.errors import ToolchainMissing


@pytest.fixture(scope="session")
def toolchain() -> HostToolchain:
    try:
        return find_host_compiler()
    except ToolchainMissing as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("emulator_cache")


@pytest.fixture(scope="session")
def build(toolchain: HostToolchain, cache_dir: Path) -> Build:
    programs: dict[tuple[str, str, bool], EmulatedProgram] = {}

    def build_program(source: str, entry: str = "kernel", traced: bool = True) -> EmulatedProgram:
        key = (source, entry, traced)
        if key not in programs:
            path = cache_dir / f"{entry}_{len(programs)}.so"
            compile_host(source, entry, path, toolchain, cache_dir=cache_dir, traced=traced)
            programs[key] = EmulatedProgram(path)
        return programs[key]

    return build_program
