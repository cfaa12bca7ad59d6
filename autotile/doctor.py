"""What works on this machine, and the fix for what does not. Finds out; changes and raises nothing."""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from autotile.assets import home_dir, templates_dir
from autotile.errors import AutotileError


@dataclass(frozen=True)
class Finding:
    """One line of the diagnosis. `ok` is None for what is merely absent and not needed by all; `fix` is then advice."""

    name: str
    ok: bool | None
    detail: str
    fix: str = ""


def can_work(findings: Sequence[Finding]) -> bool:
    """Whether a search could run and keep its results: on a GPU (nvcc or NVRTC) or the emulator (a C++ compiler)."""
    fine = {finding.name for finding in findings if finding.ok}
    needed = {"Python", "numpy", "optuna", "templates", "store"}
    return needed <= fine and ("C++ compiler" in fine or ("cuda:0" in fine and bool({"nvcc", "NVRTC"} & fine)))


def diagnose() -> list[Finding]:
    """All findings, in the order in which one would repair. No exception escapes: what fails is a finding."""
    checks: list[tuple[str, Callable[[], Iterator[Finding]]]] = [
        ("Python", _python),
        ("packages", _packages),
        ("templates", _templates),
        ("store", _store),
        ("pycuda", _pycuda),
        ("CUDA driver", _libcuda),
        ("GPU", _gpus),
        ("nvcc", _nvcc),
        ("NVRTC", _nvrtc),
        ("C++ compiler", _host_compiler),
        ("addr2line", _addr2line),
        ("nvdisasm", _nvdisasm),
        ("Nsight Compute", _ncu),
    ]
    findings: list[Finding] = []
    for name, check in checks:
        try:
            findings.extend(check())
        except Exception as error:  # a diagnosis that falls over at the first broken thing is of no use
            findings.append(
                Finding(name, False, f"{type(error).__name__}: {error}", "please report this: doctor has a bug")
            )
    return findings


def _python() -> Iterator[Finding]:
    ok = sys.version_info >= (3, 10)
    yield Finding(
        "Python", ok, f"{platform.python_version()} ({sys.executable})", "" if ok else "install Python 3.10 or newer"
    )


def _packages() -> Iterator[Finding]:
    for name in ("numpy", "optuna"):
        try:
            yield Finding(name, True, importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            yield Finding(name, False, "not installed", f"pip install {name}")


def _templates() -> Iterator[Finding]:
    folder = templates_dir()
    kernels = sorted(path.parent.name for path in folder.glob("*/kernel.py"))
    yield Finding(
        "templates",
        bool(kernels),
        f"{', '.join(kernels) or 'no kernels'} in {folder}",
        "" if kernels else "install autotile again; its templates are missing",
    )


def _store() -> Iterator[Finding]:
    home = home_dir()
    existing = home
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        yield Finding("store", False, f"{home} cannot be written: {error.strerror or error}", _SET_HOME)
        return
    if home.exists() and not home.is_dir():
        yield Finding("store", False, f"{home} is not a folder", _SET_HOME)
        return
    free_gib = shutil.disk_usage(existing).free / 2**30
    yield Finding("store", free_gib > 0.1, f"{home}, {free_gib:.1f} GiB free", "" if free_gib > 0.1 else _SET_HOME)


_SET_HOME = "set AUTOTILE_HOME to a folder that can be written and has room"


def _pycuda() -> Iterator[Finding]:
    from autotile.devices.cuda.driver import import_driver

    try:
        import_driver()
    except AutotileError as error:
        yield Finding("pycuda", False, str(error), "pip install pycuda (not needed for the emulator; see the README)")
        return
    yield Finding("pycuda", True, importlib.metadata.version("pycuda"))


def _libcuda() -> Iterator[Finding]:
    name = "nvcuda.dll" if os.name == "nt" else "libcuda.so.1"
    try:
        library = ctypes.CDLL(name)
    except OSError as error:
        yield Finding("CUDA driver", False, str(error), "install NVIDIA's driver (not needed for the emulator)")
        return
    number = ctypes.c_int()
    status = library.cuDriverGetVersion(ctypes.byref(number))
    if status != 0:
        yield Finding("CUDA driver", False, f"{name} answers with error {status}", "install NVIDIA's driver again")
        return
    yield Finding("CUDA driver", True, f"supports CUDA {number.value // 1000}.{number.value % 1000 // 10}")


def _gpus() -> Iterator[Finding]:
    from autotile.devices.cuda import cuda_device_count, cuda_problem, open_cuda

    problem = cuda_problem()
    if problem is not None:
        yield Finding("GPU", None, problem, "without a GPU, autotile uses the emulator: `--device emulator`")
        return
    for index in range(cuda_device_count()):
        try:
            info = open_cuda(index).info
        except AutotileError as error:
            yield Finding(f"cuda:{index}", False, str(error), "see the message; `nvidia-smi` shows the GPU's state")
            continue
        yield Finding(f"cuda:{index}", True, f"{info.name}, {info.arch}, driver {info.driver}")


def _archs_here() -> list[str]:
    from autotile.devices.cuda import cuda_device_count, open_cuda

    return sorted({open_cuda(index).info.arch for index in range(cuda_device_count())})


def _nvcc() -> Iterator[Finding]:
    from autotile.build import nvcc

    try:
        path = nvcc.find_nvcc()
        version = nvcc.version_text(path)
    except AutotileError as error:
        yield Finding("nvcc", False, str(error), "install the CUDA toolkit, or set AUTOTILE_NVCC or CUDA_HOME")
        return
    missing = [arch for arch in _archs_here() if arch not in (nvcc.supported_archs(path) or (arch,))]
    if missing:
        yield Finding(
            "nvcc", False, f"{version} ({path}) does not know {', '.join(missing)}", "install a newer CUDA toolkit"
        )
        return
    yield Finding("nvcc", True, f"{version} ({path})")


def _nvrtc() -> Iterator[Finding]:
    from autotile.build import nvrtc
    from autotile.types import Target

    for arch in _archs_here() or ["sm_90"]:
        try:
            compiler = nvrtc.Nvrtc(Target("cuda", arch))
        except AutotileError as error:
            named = "AUTOTILE_NVRTC" in os.environ  # then it was asked for
            yield Finding("NVRTC", False if named else None, str(error), _GET_NVRTC)
            return
        compiler.close()
    if compiler.headers is None:
        fix = (
            "install the CUDA toolkit or `pip install nvidia-cuda-runtime`: kernels with 16-bit types need its headers"
        )
        yield Finding("NVRTC", None, f"{compiler.version} ({compiler.path})", fix)
        return
    yield Finding("NVRTC", True, f"{compiler.version} ({compiler.path}, {compiler.headers})")


_GET_NVRTC = "nothing to do where nvcc works; else `pip install nvidia-cuda-nvrtc`, or set AUTOTILE_NVRTC"


def _host_compiler() -> Iterator[Finding]:
    from autotile.build import host

    try:
        found = host.find_compiler()
    except AutotileError as error:
        yield Finding(
            "C++ compiler", False, str(error), "install g++ or clang++ (for the emulator), or set AUTOTILE_CXX"
        )
        return
    yield Finding("C++ compiler", True, f"{found.version_text} ({found.path})")


def _addr2line() -> Iterator[Finding]:
    found = shutil.which("addr2line") or shutil.which("llvm-addr2line")
    if found:
        yield Finding("addr2line", True, str(Path(found)))
    else:
        yield Finding(
            "addr2line", None, "not found", "install binutils: the emulator's reports then name the source's lines"
        )


def _nvdisasm() -> Iterator[Finding]:
    from autotile.build.disassembler import find_nvdisasm

    try:
        found = find_nvdisasm()
    except AutotileError as error:
        yield Finding("nvdisasm", False, str(error), _GET_NVDISASM)
        return
    yield Finding("nvdisasm", True if found else None, str(found or "not found"), "" if found else _GET_NVDISASM)


_GET_NVDISASM = "pip install nvidia-cuda-nvdisasm, or set AUTOTILE_NVDISASM: `autotile explain` then reads machine code"


def _ncu() -> Iterator[Finding]:
    from autotile.insight.ncu import find_ncu

    try:
        yield Finding("Nsight Compute", True, str(find_ncu()))
    except AutotileError as error:
        named = "AUTOTILE_NCU" in os.environ  # then it was asked for
        yield Finding("Nsight Compute", False if named else None, str(error), _GET_NCU)


_GET_NCU = "install Nsight Compute for `autotile explain --profile`; it comes with the CUDA toolkit"
