"""CUDA devices, through pycuda. Importing this package starts nothing: CUDA is initialised by `open_cuda`."""

from autotile.devices.cuda.device import CudaDevice, open_cuda
from autotile.devices.cuda.driver import cuda_device_count, cuda_device_names, cuda_problem
from autotile.devices.cuda.packing import Pointer
from autotile.devices.cuda.prepared import Moving
from autotile.devices.cuda.program import CudaProgram
from autotile.devices.cuda.stage import CudaStage

__all__ = [
    "CudaDevice",
    "CudaProgram",
    "CudaStage",
    "Moving",
    "Pointer",
    "cuda_device_count",
    "cuda_device_names",
    "cuda_problem",
    "open_cuda",
]
