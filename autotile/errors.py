"""Every error that autotile raises, in one tree.

    AutotileError                    exit code 1
    ├── UsageError                   2   what the user wrote cannot be used
    │   ├── SpecError                    a YAML file or an override (carries file:line:column)
    │   ├── KernelError                  a kernel folder: kernel.py or its template
    │   ├── ExpressionError              a rule, a launch or a derived value
    │   ├── ConfigurationError           a configuration that its space does not hold
    │   ├── ArgumentTypeError            a call, load or search given a wrong type or dtype (also TypeError)
    │   └── ArgumentValueError           … a wrong shape, strides, aliasing or range (also ValueError)
    ├── EnvironmentalError           3   the machine lacks something
    │   ├── DeviceNotFound               no such device
    │   └── ToolchainMissing             no usable compiler
    ├── VariantError                 1   one variant failed: it becomes a record, the search goes on
    │   ├── CompileError                 the compiler refused the source
    │   │   └── CompileTimeout           … or did not finish in time (build/process.py)
    │   ├── LaunchError                  the launch was refused, or the kernel faulted
    │   ├── TimedOut                     the kernel, or the whole trial, did not end in time
    │   ├── Crashed                      the process that ran it died
    │   ├── UnsupportedByEmulator        the source uses what the CPU cannot run
    │   ├── WrongResult                  the output differs from the reference
    │   └── ImplausibleTime              faster than the hardware can be
    ├── StoreError                   1   the store cannot be read or written
    ├── ImportRefused                1   imported results that do not re-render to the same source
    └── NotTuned                     1   nothing saved answers this request

A bug in autotile is none of these and keeps its traceback.
"""

from __future__ import annotations

from pathlib import Path

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_ENVIRONMENT = 3
EXIT_INTERRUPTED = 130


class AutotileError(Exception):
    """Root of the tree. The message says what happened, where, and what to do."""

    exit_code = EXIT_FAILED


class UsageError(AutotileError):
    exit_code = EXIT_USAGE


class SpecError(UsageError):
    """A fault in a search file, with its place.

    `file` is None for values that came from the command line or from Python.
    """

    def __init__(
        self, message: str, file: Path | str | None = None, line: int | None = None, column: int | None = None
    ) -> None:
        place = "" if file is None else str(file)
        for number in (line, column):
            if file is not None and number is not None:
                place += f":{number}"
        super().__init__(f"{place}: {message}" if place else message)
        self.file, self.line, self.column = file, line, column


class KernelError(UsageError):
    pass


class ExpressionError(UsageError):
    pass


class ConfigurationError(UsageError):
    pass


class ArgumentTypeError(UsageError, TypeError):
    pass


class ArgumentValueError(UsageError, ValueError):
    pass


class EnvironmentalError(AutotileError):
    exit_code = EXIT_ENVIRONMENT


class DeviceNotFound(EnvironmentalError):
    pass


class ToolchainMissing(EnvironmentalError):
    pass


class VariantError(AutotileError):
    """`outcome` is the word under which the record of the failed trial is counted.

    `cost_s` is what the trial took where that is not what its caller had to wait, as in a replay.
    """

    outcome = "failed"
    cost_s: float | None = None


class CompileError(VariantError):
    outcome = "compile_error"


class LaunchError(VariantError):
    outcome = "launch_error"


class TimedOut(VariantError):
    outcome = "timeout"


class Crashed(VariantError):
    outcome = "crashed"


class UnsupportedByEmulator(VariantError):
    outcome = "unsupported"


class WrongResult(VariantError):
    outcome = "wrong_result"


class ImplausibleTime(VariantError):
    outcome = "implausible"


class StoreError(AutotileError):
    pass


class ImportRefused(AutotileError):
    pass


class NotTuned(AutotileError):
    pass
