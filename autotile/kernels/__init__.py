"""What a kernel is: its problem, parameters, rules, launch and reference, read from a folder under templates/."""

from autotile.kernels.declarations import (
    Derived,
    Input,
    LaunchPlan,
    OptionalSize,
    Output,
    Parameter,
    Rule,
    ShapeClass,
    Size,
    Trait,
)
from autotile.kernels.definition import Arrays, Kernel
from autotile.kernels.loader import Roots, kernel_folders, load_kernel

__all__ = [
    "Arrays",
    "Derived",
    "Input",
    "Kernel",
    "LaunchPlan",
    "OptionalSize",
    "Output",
    "Parameter",
    "Roots",
    "Rule",
    "ShapeClass",
    "Size",
    "Trait",
    "kernel_folders",
    "load_kernel",
]
