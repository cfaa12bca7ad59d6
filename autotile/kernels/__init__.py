"""What a kernel is: its problem, parameters, rules, launch and reference, read from a folder under templates/."""

from autotile.kernels.declarations import (
    Argument,
    Derived,
    Input,
    Instead,
    OptionalSize,
    Output,
    Parameter,
    Rule,
    Scalar,
    Scratch,
    ShapeClass,
    Size,
    Switch,
    Trait,
)
from autotile.kernels.definition import Arrays, Kernel
from autotile.kernels.instead import kernel_for
from autotile.kernels.launching import LaunchPlan, Map, Step
from autotile.kernels.loader import Roots, beside, kernel_folders, load_kernel

__all__ = [
    "Argument",
    "Arrays",
    "Derived",
    "Input",
    "Instead",
    "Kernel",
    "LaunchPlan",
    "Map",
    "OptionalSize",
    "Output",
    "Parameter",
    "Roots",
    "Rule",
    "Scalar",
    "Scratch",
    "ShapeClass",
    "Size",
    "Step",
    "Switch",
    "Trait",
    "beside",
    "kernel_folders",
    "kernel_for",
    "load_kernel",
]
