"""What the READMEs say of the classics' memory accesses, counted by the emulator."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotile.build import Builder
from autotile.devices.emulator.device import EmulatorDevice
from autotile.kernels import load_kernel
from autotile.measure import make_variant, open_session

COUNTED = {
    ("transpose", "strided_reads"): {"sectors_a_load_request": 32.0, "sectors_a_store_request": 4.0},
    ("transpose", "strided_writes"): {"sectors_a_load_request": 4.0, "sectors_a_store_request": 32.0},
    ("transpose", "tile32"): {
        "sectors_a_load_request": 4.0,
        "sectors_a_store_request": 4.0,
        "wavefronts_a_shared_load": 32.0,
    },
    ("transpose", "tile33"): {
        "sectors_a_load_request": 4.0,
        "sectors_a_store_request": 4.0,
        "wavefronts_a_shared_load": 1.0,
    },
    ("matmul", "one_element"): {"sectors_a_load_request": 2.5, "sectors_a_store_request": 4.0},
    ("matmul", "tile32"): {"sectors_a_load_request": 4.0, "wavefronts_a_shared_load": 1.0},
}


@pytest.mark.parametrize(("name", "preset"), COUNTED)
def test_sectors_and_wavefronts_of_the_classics(name: str, preset: str, build_home: Path) -> None:
    kernel, device = load_kernel(name), EmulatorDevice()
    problem = kernel.problem(dict.fromkeys(kernel.dimensions, 4096))
    variant = make_variant(kernel, problem, kernel.configuration(kernel.presets[preset]))
    with Builder(device.target, build_home) as builder, open_session(device, kernel, problem) as session:
        counted = dict(session.trial(variant, builder.build(variant.source)).notes)
    expected = COUNTED[name, preset]
    assert {key: float(counted[key]) for key in expected} == pytest.approx(expected, rel=0.01)
