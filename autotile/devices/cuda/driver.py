"""The only module that imports pycuda, and only when a device is asked for."""

from __future__ import annotations

import ctypes
import functools
import os
import re
from pathlib import Path
from typing import Any

from autotile.errors import DeviceNotFound

_CU_POINTER_ATTRIBUTE_CONTEXT = 1

_initialised_in: int | None = None
"""Process in which cuInit was called. CUDA does not survive a fork: a child must not use it."""


def load_driver() -> Any:
    """`pycuda.driver`, initialised.

    Raises DeviceNotFound with the reason: pycuda not installed, pycuda that cannot be imported, no usable driver, or a
    process that was forked after CUDA had been initialised.
    """
    global _initialised_in
    driver = import_driver()
    check_not_forked()
    if _initialised_in is None:
        try:
            driver.init()
        except driver.Error as error:
            raise DeviceNotFound(
                f"CUDA cannot be initialised: {error}. Check that `nvidia-smi` lists a GPU and that its driver is at "
                "least as new as the CUDA version that pycuda was built with; in a process forked from one that uses "
                'CUDA it never can: start processes with "spawn"'
            ) from error
        _initialised_in = os.getpid()
    return driver


def import_driver() -> Any:
    """`pycuda.driver`, not initialised. Raises DeviceNotFound with the reason."""
    try:
        import pycuda.driver as driver
    except ModuleNotFoundError as error:
        if error.name and error.name.split(".")[0] == "pycuda":
            raise DeviceNotFound(
                "pycuda is not installed: `pip install pycuda` (needs a CUDA toolkit and a C++ compiler)"
            ) from error
        raise DeviceNotFound(f"pycuda import failed: {error}") from error
    except Exception as error:  # an extension module may fail in any way; its words are the message
        raise DeviceNotFound(f"pycuda import failed: {error}") from error
    return driver


def import_gpuarray() -> Any:
    """`pycuda.gpuarray`."""
    from pycuda import gpuarray

    return gpuarray


def check_not_forked() -> None:
    """Raises DeviceNotFound in a child that was forked after its parent had initialised CUDA."""
    if _initialised_in is not None and _initialised_in != os.getpid():
        raise DeviceNotFound(
            f"CUDA was initialised before this process ({os.getpid()}) was forked from {_initialised_in}, and cannot "
            'be used here; start processes with "spawn": multiprocessing.get_context("spawn")'
        )


def cuda_problem() -> str | None:
    """Why CUDA cannot be used here, in a sentence; None when it can."""
    try:
        driver = load_driver()
    except DeviceNotFound as error:
        return str(error)
    return None if driver.Device.count() else "CUDA works, but no GPU is visible (see CUDA_VISIBLE_DEVICES)"


def cuda_device_count() -> int:
    """GPUs that can be opened; 0 where CUDA cannot be used (see `cuda_problem`)."""
    try:
        return int(load_driver().Device.count())
    except DeviceNotFound:
        return 0


def cuda_device_names() -> list[str]:
    """Names of the GPUs that can be opened, by index; none where CUDA cannot be used. Makes no context."""
    try:
        driver = load_driver()
        return [str(driver.Device(index).name()) for index in range(driver.Device.count())]
    except DeviceNotFound:
        return []


@functools.lru_cache(maxsize=1)
def libcuda() -> ctypes.CDLL:
    """The driver's own library, for what pycuda does not offer: the thread's current context, and launches on streams
    that another library made. Raises OSError when there is none."""
    library = ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
    library.cuCtxGetCurrent.argtypes = [ctypes.POINTER(ctypes.c_void_p)]
    for name in ("cuCtxSetCurrent", "cuCtxPushCurrent_v2"):
        getattr(library, name).argtypes = [ctypes.c_void_p]
    library.cuCtxPopCurrent_v2.argtypes = [ctypes.POINTER(ctypes.c_void_p)]
    library.cuPointerGetAttribute.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64]
    library.cuModuleLoadData.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_char_p]
    library.cuModuleUnload.argtypes = [ctypes.c_void_p]
    library.cuModuleGetFunction.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p, ctypes.c_char_p]
    library.cuFuncSetAttribute.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int]
    library.cuLaunchKernel.argtypes = [ctypes.c_void_p, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 3]
    library.cuGetErrorString.argtypes = [ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)]
    return library


def error_words(status: int) -> str:
    """CUDA's words for a status of its driver API."""
    text = ctypes.c_char_p()
    libcuda().cuGetErrorString(status, ctypes.byref(text))
    return text.value.decode() if text.value else f"CUDA error {status}"


def current_context() -> int | None:
    """Handle of the context that is current in this thread."""
    handle = ctypes.c_void_p()
    libcuda().cuCtxGetCurrent(ctypes.byref(handle))
    return handle.value


def context_of(address: int) -> int | None:
    """Handle of the context in which memory was allocated; None where CUDA does not say (memory of a pool, say)."""
    handle = ctypes.c_void_p()
    status = libcuda().cuPointerGetAttribute(ctypes.byref(handle), _CU_POINTER_ATTRIBUTE_CONTEXT, address)
    return handle.value if status == 0 else None


def driver_version(driver: Any) -> str:
    """The NVIDIA driver's version such as `580.159.04`; the driver API's where that cannot be read."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8")
    except OSError:
        text = ""
    match = re.search(r"\b(\d{3,}\.\d+(?:\.\d+)?)\b", text)
    if match:
        return match[1]
    by_nvml = _nvml_driver_version()
    if by_nvml:
        return by_nvml
    number = int(driver.get_driver_version())
    return f"CUDA {number // 1000}.{number % 1000 // 10} driver API"


def _nvml_driver_version() -> str:
    try:
        nvml = ctypes.CDLL("nvml.dll" if os.name == "nt" else "libnvidia-ml.so.1")
    except OSError:
        return ""
    buffer = ctypes.create_string_buffer(96)
    if nvml.nvmlInit_v2() != 0:
        return ""
    known = nvml.nvmlSystemGetDriverVersion(buffer, len(buffer)) == 0
    nvml.nvmlShutdown()
    return buffer.value.decode() if known else ""
