"""A kernel small enough to reason about, and a device and a builder that answer at once and as they are told."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from autotile.devices.base import Check, Workload
from autotile.devices.gpus import find_gpu
from autotile.devices.info import Clocks
from autotile.types import Binary, Launch, Source, Target, Value

Values = Mapping[str, Value]

DEFINITION = """
from autotile.kernels import Input, Kernel, LaunchPlan, Output, Parameter, Rule, Size

KERNEL = Kernel(
    name="walk",
    doc="out[i] = in[i]",
    dimensions=("n",),
    dtypes=("float32", "float64"),
    arguments=(Input("in", ("n",)), Output("out", ("n",)), Size("n")),
    parameters=(
        Parameter("width", (32, 64, 128, 256), 32, "threads a block"),
        Parameter("steps", (1, 2, 4), 1, "elements a thread"),
        Parameter("mode", ("plain", "staged"), "plain", "straight, or through shared memory"),
        Parameter("hint", (False, True), False, "a word in a comment: the machine code stays the same"),
    ),
    rules=(Rule("mode == 'plain' or steps > 1", "staging {steps} element a thread is of no use", "kernel.py"),),
    launch=LaunchPlan(
        grid=("ceil_div(problem.n, width * steps)",),
        block=("width",),
        static_shared_bytes="width * steps * problem.itemsize if mode == 'staged' else 0",
    ),
    presets={"narrow": {"width": 32}, "wide": {"width": 256}},
    reference=lambda inputs, problem: {"out": inputs["in"].copy()},
    error_bound=lambda inputs, problem: {"out": 0.0},
    flops="0",
    bytes="2 * problem.n * problem.itemsize",
    trace_sizes=("width * steps",),
    check_sizes=((1,), (33,), (1000,)),
)
"""

TEMPLATE = """\
// walk width={{ width }} steps={{ steps }} mode={{ mode }} hint={{ 'true' if hint else 'false' }}
extern "C" __global__ void {{ entry }}(const {{ ctype }}* in, {{ ctype }}* out, int n)
{
    const int first = (blockIdx.x * {{ width }} + threadIdx.x) * {{ steps }};
    for (int i = first; i < first + {{ steps }} && i < n; ++i) {
{% if mode == 'staged' %}
        __shared__ {{ ctype }} slots[{{ width * steps }}];
        slots[i - blockIdx.x * {{ width * steps }}] = in[i];
        out[i] = slots[i - blockIdx.x * {{ width * steps }}];
{% else %}
        out[i] = in[i];
{% endif %}
    }
}
"""

SIZE = 4096
"""Elements of the problem that the fake device is asked to search; proofs come in the kernel's other sizes."""

TWELVE = {"mode": ("plain",), "hint": (False,)}
"""Domains that leave 12 configurations."""


def write_kernel(root: Path, definition: str = DEFINITION, template: str = TEMPLATE) -> Path:
    """Puts the kernel `walk` under `root`, which then is a folder of kernels."""
    folder = root / "walk"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kernel.py").write_text(definition)
    (folder / "kernel.cu.j2").write_text(template)
    return root


def formula(values: Values) -> float:
    """ms; the fastest is width 64, steps 2, mode plain."""
    slow = {32: 0.2, 64: 0.0, 128: 0.1, 256: 0.3, 512: 0.4}[int(values["width"])] + 0.05 * abs(int(values["steps"]) - 2)
    return 1.0 + slow + (0.5 if values["mode"] == "staged" else 0.0)


@dataclass(frozen=True)
class FakeBinary(Binary):
    values: Values = field(default_factory=dict)


class FakeBuilder:
    """Reads the configuration back from the source. `refuse(values)` may raise CompileError."""

    jobs = 2
    flags = ""

    def __init__(self, compiler: str = "fakecc 1.0", refuse: Callable[[Values], object] = lambda values: None) -> None:
        self.compiler, self._refuse = compiler, refuse
        self.target = Target("fake", "sm_90")
        self.submitted: list[Values] = []
        self._built: dict[str, FakeBinary] = {}

    def find(self, source: Source) -> Binary | None:
        return self._built.get(source.digest)

    def build(self, source: Source) -> Binary:
        if source.digest not in self._built:
            values = {name: _value(text) for name, text in re.findall(r"(\w+)=(\w+)", source.text.partition("\n")[0])}
            self._refuse(values)
            code = hashlib.sha256(source.text.partition("\n")[2].encode()).hexdigest()
            self._built[source.digest] = FakeBinary(
                Path("/none"), source.entry, code, self.target, self.compiler, 32, 0, 0, 0.0, values=values
            )
        return self._built[source.digest]

    def warm_up(self) -> None:
        return None

    def submit(self, source: Source) -> Future[Binary]:
        future: Future[Binary] = Future()
        fresh = source.digest not in self._built
        try:
            binary = self.build(source)
        except Exception as error:
            future.set_exception(error)
        else:
            if fresh:
                self.submitted.append(binary.values)
            future.set_result(binary)
        return future

    def close(self) -> None:
        return None

    def __enter__(self) -> FakeBuilder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class FakeDevice:
    """Times by a formula. `on_check(values, n)` may raise, or return a Check that is not ok.

    `poisoned` says what ended the device's context.
    `trials` lists what was checked at the searched size, `proofs` what was checked at others, `timed` what was timed.
    """

    comparer = None
    reopen: Callable[[], FakeDevice] | None = None
    launch_limit_s = 10.0

    def __init__(
        self,
        time_ms: Callable[[Values], float] = formula,
        on_check: Callable[[Values, int], Check | None] = lambda values, n: None,
        **info: Any,
    ) -> None:
        self.info = replace(
            find_gpu("h200"), **{"name": "Fake GPU", "driver": "1.0", "kind": "cuda", "estimated": False, **info}
        )
        self.target = Target("fake", "sm_90")
        self.time_ms, self.on_check = time_ms, on_check
        self.poisoned: str | None = None
        self.trials: list[Values] = []
        self.proofs: list[Values] = []
        self.timed: list[Values] = []

    def load(self, binary: FakeBinary) -> FakeBinary:
        return binary

    def clocks(self) -> Clocks | None:
        return None

    def check_timed_of(self, values: Values) -> Check:
        return Check(0.0, 0)

    def stage(self, workload: Workload, comparer: Binary | None = None) -> FakeStage:
        return FakeStage(self, workload)

    def call(self, program: Any, launch: Launch, arguments: Any, stream: Any = None) -> None:
        raise AssertionError("a search calls nothing")


class FakeStage:
    def __init__(self, device: FakeDevice, workload: Workload) -> None:
        self._device = device
        self._size = next(iter(workload.inputs.values())).size
        self._checked: Values = {}

    def __enter__(self) -> FakeStage:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def check(self, program: FakeBinary, launch: Launch, fillings: int = 2) -> Check:
        if self._size != SIZE:
            self._device.proofs.append(program.values)
            return self._device.on_check(program.values, self._size) or Check(0.0, 0)
        self._checked = program.values
        right = False
        try:
            check = self._device.on_check(program.values, self._size) or Check(0.0, 0)
            right = check.ok
        finally:
            if not right:
                self._device.trials.append(program.values)
        return check

    def check_timed(self) -> Check:
        self._device.trials.append(self._checked)  # what was right and timed; a check of a winner once more is no trial
        return self._device.check_timed_of(self._checked)

    def times_ms(self, program: FakeBinary, launch: Launch, runs: int) -> tuple[float, ...]:
        self._device.timed.append(program.values)
        return (self._device.time_ms(program.values),) * runs


def _value(text: str) -> Value:
    return {"true": True, "false": False}.get(text, int(text) if text.isdigit() else text)
