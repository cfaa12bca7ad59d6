"""What costs, and what to change, in the order of its weight in the estimate."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from autotile.devices.emulator.report import Diagnostic
from autotile.insight.causes import causes_of
from autotile.insight.explanation import Finding
from autotile.insight.facts import Facts
from autotile.insight.patterns import TERMS

_ARGUMENT = re.compile(r"\bargument (\d+)\b")

LEAST_WEIGHT, UNKNOWN_WEIGHT = 0.03, 0.05
"""Of the estimate: what weighs less is no finding, and where what it does not hold is told among the others."""

_UNITS = {
    "DRAM": "the GPU's memory (DRAM), the slower, the shorter the pieces that a block asks for",
    "L2": "the way to the L2 cache, by which all sectors come that the first cache does not hold",
    "LSU": "the load/store units, which take a pass for each wavefront and for each line of 128 bytes of a request",
    "arithmetic": "arithmetic, at the data sheet's peak without tensor cores",
    "issue": "issuing instructions, of which a scheduler starts one a clock",
    "latency": "waiting: for memory, at barriers, for blocks to start and to end",
}


def findings_of(
    facts: Facts, diagnostics: Iterable[Diagnostic] = (), arguments: Sequence[str] = ()
) -> tuple[Finding, ...]:
    """Faults alone, if there are any; else accesses that waste most of what they move, then what else costs, by its
    weight; last what bounds the variant in any case. `arguments` are the names of the kernel's."""

    def named(number: re.Match[str]) -> str:
        at = int(number[1])
        return f"`{arguments[at]}`" if at < len(arguments) else number[0]

    faults = [
        Finding(f"It is wrong: {re.sub(_ARGUMENT, named, found.message)}.", line=found.line)
        for found in telling(diagnostics)
    ]
    if faults:
        return tuple(faults)  # what it costs does not matter

    def weight(finding: Finding) -> float:
        """Of the estimate."""
        return UNKNOWN_WEIGHT if finding.weight_ms is None else finding.weight_ms / facts.roofline.time_ms

    found = list(causes_of(facts))
    weighty = sorted(
        (f for f in found if f.wasteful or weight(f) >= LEAST_WEIGHT), key=lambda f: (not f.wasteful, -weight(f))
    )
    return tuple(_once([*weighty, _bound(facts, nothing_else=not weighty)]))


def telling(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """One for each pair of lines, and of a race not also that it reads what nobody has written yet."""
    found: dict[frozenset[int | None], Diagnostic] = {}
    for each in diagnostics:  # in the order of their weight
        lines = frozenset((each.line, each.other_line)) if each.other_line is not None else frozenset((each.line,))
        raced = each.kind == "uninitialised_shared" and any(each.line in known for known in found)
        if not raced:
            found.setdefault(lines, each)
    return list(found.values())


def _bound(facts: Facts, nothing_else: bool) -> Finding:
    name, r = facts.busiest, facts.roofline
    unit = _UNITS.get(name, name)
    opening = "Nothing weighty is wrong. " if nothing_else else ""
    ceiling = "memory's bandwidth" if r.bound == "memory" else "peak arithmetic"
    allows = f" The ceiling for this problem, {ceiling}, allows {r.attainable_ms:.3g} ms." if r.attainable_ms else ""
    about = "≈" if r.estimated else ""
    return Finding(
        f"{opening}What bounds it is {unit}: that alone would take ≈{facts.units_ms[name]:.3g} ms (estimate) of "
        f"{about}{r.time_ms:.3g} ms.{allows}"
    )


def _once(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Each term is explained where it comes first."""
    said: set[str] = set()

    def told(sentence: str) -> str:
        for term in TERMS:
            if term in sentence:
                first, _, rest = sentence.partition(term)
                sentence = first + ("" if term in said else term) + rest.replace(term, "")
                said.add(term)
        return sentence

    for finding in findings:
        yield replace(finding, words=told(finding.words), cure=told(finding.cure))
