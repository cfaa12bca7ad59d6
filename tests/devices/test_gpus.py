"""The table of GPUs."""

import dataclasses

import pytest

from autotile.devices.gpus import find_gpu, gpu_table, lookup_gpu, peaks_from_lanes
from autotile.errors import DeviceNotFound

OPT_IN_KIB = {
    "sm_70": 96,
    "sm_75": 64,
    "sm_80": 163,
    "sm_86": 99,
    "sm_89": 99,
    "sm_120": 99,
    "sm_90": 227,
    "sm_100": 227,
}


@pytest.mark.parametrize("key", gpu_table())
def test_rows_are_whole_and_sane(key):
    gpu = gpu_table()[key]
    assert gpu.kind == "table"
    assert gpu.estimated
    assert gpu.shared_bytes_optin == OPT_IN_KIB[gpu.arch] * 1024
    assert gpu.shared_bytes_static == 48 * 1024 <= gpu.shared_bytes_optin <= gpu.shared_bytes_per_sm
    assert gpu.max_threads_per_sm % gpu.max_threads_per_block in (0, 512)
    for field in dataclasses.fields(gpu):
        value = getattr(gpu, field.name)
        if isinstance(value, int | float) and field.name != "estimated":
            assert value > 0, field.name
    assert gpu.fp64_tflops <= gpu.fp32_tflops <= gpu.fp16_tflops


def test_measured_facts_of_the_h200():
    h200 = gpu_table()["h200"]
    assert h200.fp32_tflops == pytest.approx(66.9, abs=0.05)
    assert (h200.shared_bytes_optin, h200.shared_bytes_per_sm) == (232448, 233472)


@pytest.mark.parametrize("name", ["h200", "H200", "NVIDIA H200", "nvidia-h200"])
def test_found_however_it_is_written(name):
    assert find_gpu(name) is gpu_table()["h200"]


def test_geforce_names():
    assert find_gpu("RTX 4090") is find_gpu("NVIDIA GeForce RTX 4090") is find_gpu("rtx4090")


def test_unknown_names_are_refused_with_a_suggestion():
    with pytest.raises(DeviceNotFound, match=r"did you mean 'h200'\?"):
        find_gpu("h20")


def test_a_slice_of_a_gpu_is_not_that_gpu():
    assert lookup_gpu("NVIDIA H200", 132) is not None
    assert lookup_gpu("NVIDIA H200", 60) is None
    assert lookup_gpu("NVIDIA XYZ", 132) is None


def test_an_unknown_arch_gets_generous_peaks():
    known = peaks_from_lanes("sm_90", 100, 1.0)
    unknown = peaks_from_lanes("sm_199", 100, 1.0)
    assert all(b >= a for a, b in zip(known, unknown, strict=True))


@pytest.mark.parametrize("key", gpu_table())
def test_peaks_by_type(key):
    gpu = gpu_table()[key]
    twice_int8, twice_float8 = gpu.compute_capability >= 75, gpu.compute_capability >= 89
    assert gpu.peak_tflops("bfloat16") == gpu.peak_tflops("float16") == gpu.fp16_tflops
    assert gpu.peak_tflops("tf32") == gpu.fp16_tflops / 2 >= gpu.fp32_tflops
    assert gpu.peak_tflops("int8") == gpu.fp16_tflops * (2 if twice_int8 else 1)
    for name in ("float8_e4m3fn", "float8_e5m2"):
        assert gpu.peak_tflops(name) == gpu.fp16_tflops * (2 if twice_float8 else 1)
    assert gpu.peak_tflops("complex64") == float("inf")


@pytest.mark.parametrize(
    ("key", "dtype", "sheet"),
    [
        ("h200", "tf32", 494.7), ("h200", "int8", 1979), ("h200", "float8_e4m3fn", 1979),
        ("a100-80gb", "tf32", 156), ("a100-80gb", "int8", 624), ("l40s", "float8_e5m2", 733),
        ("rtx4090", "int8", 660.6), ("t4", "int8", 130), ("rtx3090", "tf32", 35.6), ("b200", "float8_e4m3fn", 4500),
    ],
)  # fmt: skip
def test_a_peak_is_no_less_than_the_data_sheets(key, dtype, sheet):
    """Without sparsity, TFLOP/s or TOP/s: a floor of time stays below what any kernel takes."""
    assert gpu_table()[key].peak_tflops(dtype) >= 0.998 * sheet
