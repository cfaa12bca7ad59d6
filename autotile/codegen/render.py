"""Renders a kernel's Jinja template. The only module that imports jinja2.

A template sees, and may use, exactly:

    every parameter, every derived value, every trait     threads, shared_bytes, static_shared_bytes
    entry        the function's name                       dtype, ctype, accumulator, itemsize, dtype_header
    ceil_div     as in expressions                         result_dtype, result, result_itemsize, result_header

`result` is the C++ type of arrays of="result", and the others say of it what those above say of the element's.

It never sees the problem's sizes: the text depends on them through traits alone, so one binary serves many problems.
An unknown name is an error (StrictUndefined, sandboxed), and so is a parameter that nothing uses.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import jinja2
import jinja2.meta
import jinja2.nodes
import jinja2.sandbox

from autotile.dtypes import element_type
from autotile.errors import KernelError
from autotile.kernels import Kernel
from autotile.kernels.arithmetic import ceil_div
from autotile.kernels.expressions import Expression
from autotile.kernels.loader import DEFINITION, TEMPLATE
from autotile.types import Problem, Source, Value, digest

_PYTHON_WORDS = re.compile(r"\b(?:True|False|None)\b")

FIXED_NAMES = frozenset(
    "entry dtype ctype accumulator itemsize dtype_header result_dtype result result_itemsize result_header threads "
    "shared_bytes static_shared_bytes ceil_div".split()
)


def render(
    kernel: Kernel, problem: Problem, configuration: Mapping[str, Value], alignment: int | None = None
) -> Source:
    """The CUDA text of one variant for one problem, whose base pointers are multiples of `alignment` bytes (of as
    many as its offset leaves).

    Raises KernelError, with the template's file and line, when the template is at fault.
    """
    template = _checked_template(
        kernel.folder, _stamp(kernel.folder), kernel.name, _names(kernel), _names_used_elsewhere(kernel)
    )
    traits = kernel.traits_of(problem, configuration, alignment)
    values = {
        name: value
        for name, value in kernel.scope(problem, configuration, alignment).items()
        if not name.startswith("problem.")
    }
    element, result = element_type(problem.dtype), kernel.result_type(problem)
    try:
        text = template.render(
            values
            | traits
            | {
                "entry": kernel.entry,
                "dtype": element.name,
                "ctype": element.c_name,
                "accumulator": element.accumulator,
                "itemsize": element.itemsize,
                "dtype_header": element.header,
                "result_dtype": result.name,
                "result": result.c_name,
                "result_itemsize": result.itemsize,
                "result_header": result.header,
                "ceil_div": ceil_div,
            }
        )
    except jinja2.TemplateError as error:
        raise KernelError(f"{_place(kernel.folder, error)}: {error.message}") from error
    except Exception as error:  # Python's own, from an expression in the template: a fault of that file
        raise KernelError(f"{_place(kernel.folder, error)}: {type(error).__name__}: {error}") from error
    _refuse_python_words(kernel.folder, text)
    return Source(kernel.name, kernel.entry, text, tuple(traits.items()))


def template_digest(kernel: Kernel) -> str:
    """Identity of all that decides a variant's text and launch: the template, what it includes, and kernel.py with
    what lies beside it, and what it shares with other kernels."""
    return _template_digest(kernel.folder, _stamp(kernel.folder))


def _stamp(folder: Path) -> tuple[tuple[str, int], ...]:
    """When the files that a kernel may be made of last changed: an edited template is read anew."""
    shared = (file for kind in ("py", "j2") for file in folder.parent.glob(f"_*/*.{kind}"))
    files = [*folder.glob("*.py"), *folder.rglob("*.j2"), *shared]
    return tuple((str(file), file.stat().st_mtime_ns) for file in files if file.is_file())


@lru_cache(maxsize=64)
def _template_digest(folder: Path, stamp: tuple[tuple[str, int], ...]) -> str:
    parts = [digest(text) for text in _python(folder)]
    parts += [digest(text) for _, text in sorted(_sources(folder).items())]
    return hashlib.sha256("".join(parts).encode()).hexdigest()[:16]


def _python(folder: Path) -> list[str]:
    """What a kernel's folder has of Python, then what it names of shared folders' Python, as `_lib/matmul.py`."""
    own = [file.read_text(encoding="utf-8") for file in sorted(folder.glob("*.py"))]
    shared = sorted(folder.parent.glob("_*/*.py"))
    named = [file for file in shared if any(f"{file.parent.name}/{file.name}" in text for text in own)]
    return own + [file.read_text(encoding="utf-8") for file in named]


def _environment(folder: Path) -> jinja2.Environment:
    return jinja2.sandbox.SandboxedEnvironment(
        loader=jinja2.FileSystemLoader([folder, folder.parent]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # the text is CUDA, not HTML
        finalize=_as_cuda,
    )


def _as_cuda(value: Any) -> Any:
    """Booleans as C++ writes them."""
    return str(value).lower() if isinstance(value, bool) else value


def _refuse_python_words(folder: Path, text: str) -> None:
    """Raises KernelError for a `True` that came of joining or formatting a boolean, which `_as_cuda` never sees."""
    for number, line in enumerate(text.splitlines(), 1):
        for word in _PYTHON_WORDS.findall(line):
            if not any(re.search(rf"\b{word}\b", source) for source in _sources(folder).values()):
                raise KernelError(
                    f"{folder / TEMPLATE}: line {number} of the generated text has Python's {word}, which CUDA does "
                    f"not know: {line.strip()!r}. Write a boolean as {{{{ name }}}}, or as {{{{ 1 if name else 0 }}}}"
                )


def _sources(folder: Path) -> dict[str, str]:
    """Template name → text, for the kernel's template and everything that it includes or imports.

    Raises KernelError, with file and line, for one that does not parse or is not there.
    """
    environment = _environment(folder)
    assert environment.loader is not None
    found: dict[str, str] = {}
    pending = [TEMPLATE]
    while pending:
        name = pending.pop()
        if name in found:
            continue
        try:
            text, _, _ = environment.loader.get_source(environment, name)
            parsed = environment.parse(text)
        except jinja2.TemplateSyntaxError as error:
            raise KernelError(f"{folder / name}:{error.lineno}: {error.message}") from error
        except jinja2.TemplateNotFound as error:
            raise KernelError(f"{folder}: the template {error.name} is not there") from error
        found[name] = text
        pending += [other for other in jinja2.meta.find_referenced_templates(parsed) if other]
    return found


def _names(kernel: Kernel) -> frozenset[str]:
    declared = [p.name for p in kernel.parameters] + [d.name for d in kernel.derived] + [t.name for t in kernel.traits]
    return frozenset(declared)


def _names_used_elsewhere(kernel: Kernel) -> frozenset[str]:
    """Names that decide the launch, another value or a trait. A derived value may also serve a rule alone; a parameter
    that only rules name would change nothing."""
    texts = (
        *kernel.launch.expressions,
        *(d.expression for d in kernel.derived),
        *(t.expression for t in kernel.traits),
    )
    used = {name for text in texts for name in Expression(text).names}
    in_rules = {name for rule in kernel.rules for name in Expression(rule.expression).names}
    return frozenset(used | (in_rules & {d.name for d in kernel.derived}))


@lru_cache(maxsize=64)
def _checked_template(
    folder: Path,
    stamp: tuple[tuple[str, int], ...],
    kernel: str,
    declared: frozenset[str],
    used_elsewhere: frozenset[str],
) -> jinja2.Template:
    environment = _environment(folder)
    try:
        used = {
            name
            for text in _sources(folder).values()
            for name in jinja2.meta.find_undeclared_variables(environment.parse(text))
        }
        template = environment.get_template(TEMPLATE)
    except jinja2.TemplateError as error:
        raise KernelError(f"{_place(folder, error)}: {error.message}") from error
    unknown = used - declared - FIXED_NAMES - _set_somewhere(environment, folder)
    if unknown:
        raise KernelError(f"{_line_of(folder, min(unknown))}: the template uses {', '.join(sorted(unknown))}, which "
                          f"kernel {kernel} does not declare")  # fmt: skip
    unused = declared - used - used_elsewhere
    if unused:
        raise KernelError(f"{folder / TEMPLATE}: nothing uses {', '.join(sorted(unused))}, declared in {DEFINITION}")
    return template


def _set_somewhere(environment: jinja2.Environment, folder: Path) -> set[str]:
    """Names that some template of the kernel sets or imports: the ones that it includes may use them too."""
    found: set[str] = set()
    for text in _sources(folder).values():
        parsed = environment.parse(text)
        found |= {node.target.name for node in parsed.find_all(jinja2.nodes.Assign) if hasattr(node.target, "name")}
        for imported in parsed.find_all(jinja2.nodes.FromImport):
            found |= {name if isinstance(name, str) else name[1] for name in imported.names}
    return found


def _line_of(folder: Path, name: str) -> str:
    """Where the name first stands, as file:line, for a message."""
    for template, text in _sources(folder).items():
        for number, line in enumerate(text.splitlines(), 1):
            if name in line:
                return f"{folder / template}:{number}"
    return str(folder / TEMPLATE)


def _place(folder: Path, error: BaseException) -> str:
    if isinstance(error, jinja2.TemplateSyntaxError):
        return f"{error.filename or folder / TEMPLATE}:{error.lineno}"
    trace = error.__traceback__
    line: int | None = None
    file: str = str(folder / TEMPLATE)
    while trace is not None:  # the last frame of a template is where it went wrong
        if trace.tb_frame.f_code.co_filename.endswith(".j2"):
            line, file = trace.tb_lineno, trace.tb_frame.f_code.co_filename
        trace = trace.tb_next
    return f"{file}:{line}" if line else file
