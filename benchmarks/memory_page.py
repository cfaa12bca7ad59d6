"""Makes the tables of docs/memory.md: runs the kernels of docs/examples on the emulator, and puts its counts beside
those of Nsight Compute (tests/data/counters/h200.json). Figures there are never typed.

python benchmarks/memory_page.py            rewrite docs/memory.md between its markers
python benchmarks/memory_page.py --check    exit 1 if it would change
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from markdown_rows import row_of
from memory_examples import (
    ARRAYS,
    BANKS,
    FIRST,
    H200,
    LATE,
    NAIVE,
    PLAIN,
    PRODUCT,
    REGISTERS,
    ROOT,
    SECOND,
    STRETCHES,
    STRIDED,
    STRUCTS,
    SWIZZLED,
    TILE32,
    TILE33,
    TURNS,
    WINDOWS,
    WORDS,
    Example,
    Runs,
)

from autotile.devices.emulator.report import Diagnostic
from autotile.devices.occupancy import residency

PAGE = ROOT / "docs" / "memory.md"
MARKED = re.compile(r"(<!-- (\w+) -->\n).*?(<!-- end of \2 -->)", re.DOTALL)

LOAD, STORE = "sectors_a_load_request", "sectors_a_store_request"
SHARED_LOAD = "wavefronts_a_shared_load"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [*row_of(head, head=True), *(line for row in rows for line in row_of(row))]


def both_ways(runs: Runs, examples: Sequence[Example]) -> list[str]:
    """Sectors of loads and stores, beside the H200's."""
    counts = ("sectors a load", "on an H200", "sectors a store", "on an H200", "of what is loaded, used")
    rows = []
    for one in examples:
        load, store = runs.of(one, "load"), runs.of(one, "store")
        rows.append((one.words, load.each, runs.on_h200(one, LOAD), store.each, runs.on_h200(one, STORE), load.used))
    return table((f"`{examples[0].kernel}`", *counts), rows)


def request(runs: Runs, examples: Sequence[Example]) -> list[str]:
    head = ("a request of", "lanes", "bytes a lane", "bytes in all", "sectors", "on an H200")
    rows = []
    for one in examples:
        for op, counter in (("load", LOAD), ("store", STORE)):
            (access,) = (a for a in runs.trace(one).main.accesses if a.op == op)
            asked = access.lanes * access.access_bytes
            cells = (f"{access.lanes:.0f}", f"{access.access_bytes}", f"{asked:.0f}", f"{access.per_request:.2f}")
            rows.append((f"`{one.kernel}`, {op}", *cells, runs.on_h200(one, counter)))
    return table(head, rows)


def strides(runs: Runs, examples: Sequence[Example]) -> list[str]:
    head = ("`copy`", "bytes from lane to lane", "sectors a load", "sectors a store", "of what is loaded, used")
    rows = []
    for one in examples:
        load, store = runs.of(one, "load"), runs.of(one, "store")
        floats = int(one.values["each"]) if one.values.get("order") == "stretches" else 1
        rows.append((one.words, f"{4 * floats}", load.each, store.each, load.used))
    return table(head, rows)


def words(runs: Runs, examples: Sequence[Example]) -> list[str]:
    head = (
        f"`copy`, {examples[0].problem['n']} floats",
        "load requests",
        "sectors a load",
        "the fewest possible",
        "sectors in all",
    )
    rows = []
    for one in examples:
        load = runs.of(one, "load")
        rows.append((one.words, f"{load.requests}", load.each, f"{load.least / load.requests:.2f}", f"{load.total}"))
    return table(head, rows)


def banks(runs: Runs, examples: Sequence[Example]) -> list[str]:
    head = ("floats from lane to lane", "banks", "wavefronts a store", "a read of `own`", "a read of `first`")
    rows = []
    for one in examples:
        stride = int(one.values["stride"])
        stored = runs.of(one, "store", "shared")
        own, first = (runs.at(one, f"float {name} =", "load") for name in ("own", "first"))
        distinct = {lane * stride % 32 for lane in range(32)}
        rows.append((one.words, f"{len(distinct)}", stored.each, own.each, first.each))
    return table(head, rows)


def padding(runs: Runs, examples: Sequence[Example]) -> list[str]:
    head = ("`turn`", "bytes of the tile", "wavefronts a shared store", "wavefronts a shared load", "on an H200")
    rows = []
    for one in examples:
        size = one.variant.kernel.scope(one.problem, one.variant.configuration)["static_shared_bytes"]
        store, load = runs.of(one, "store", "shared"), runs.of(one, "load", "shared")
        rows.append((one.words, f"{size}", store.each, load.each, runs.on_h200(one, SHARED_LOAD)))
    return table(head, rows)


def pair(race: Diagnostic) -> tuple[int, int]:
    """Both lines of a race, the smaller first; 0 for one that is not known."""
    first, second = sorted((race.line or 0, race.other_line or 0))
    return first, second


def races(runs: Runs, example: Example, op: str) -> list[Diagnostic]:
    """One for each pair of lines, in their order; `op` is how the accesses would go that the barrier keeps in order."""
    found = {pair(d): d for d in runs.trace(example).diagnostics if (d.kind, d.op) == ("shared_race", op)}
    return [found[lines] for lines in sorted(found)]


def barriers(runs: Runs, examples: Sequence[Example]) -> list[str]:
    """Both lines of each race, and the emulator's own words for the one across warps."""
    rows, said = [], []
    for one, op in zip(examples, ("read-after-write", "write-after-read"), strict=True):
        for race in races(runs, one, op):
            lines = (f"{n}: `{one.text[n - 1].strip().rstrip(';')}`" for n in pair(race))
            warps = "of two warps" if race.across_warps else "of one warp"
            rows.append((one.words, *lines, warps, runs.measured["results"][one.measured]))
            said += [f"{one.words} barrier missing: {race.message}"] if race.across_warps else []
    head = ("barrier missing", "race of line", "with line", "by threads", "result on an H200")
    return [*table(head, rows), "", "```text", *said, "```"]


def reuse(runs: Runs, examples: Sequence[Example]) -> list[str]:
    head = ("a float of", "global bytes loaded", "global bytes stored", "shared bytes stored and loaded")
    rows = []
    for one in examples:
        load, store = runs.of(one, "load"), runs.of(one, "store")
        shared = runs.of(one, "load", "shared").asked_bytes + runs.of(one, "store", "shared").asked_bytes
        asked = (load.asked_bytes, store.asked_bytes, shared)
        rows.append((f"`{one.kernel}`", *(f"{some / one.problem['n']:.4g}" for some in asked)))
    return table(head, rows)


def traffic(runs: Runs, examples: Sequence[Example]) -> list[str]:
    """The first of the examples is what the others are beside."""
    asked_of, moved_of = "bytes asked a FLOP", "bytes of sectors a FLOP"
    head = ("`product`", asked_of, "times less than naive", moved_of, "sectors a load", "on an H200")
    rows = []
    most = runs.of(examples[0], "load").asked_bytes
    for one in examples:
        load, flops = runs.of(one, "load"), one.variant.kernel.flops_of(one.problem)
        asked, moved = load.asked_bytes / flops, 32 * load.total / flops
        counts = (f"{asked:.4g}", f"{most / load.asked_bytes:.4g}", f"{moved:.4g}", load.each)
        rows.append((one.words, *counts, runs.on_h200(one, LOAD)))
    return table(head, rows)


def operands(runs: Runs, examples: Sequence[Example]) -> list[str]:
    """A warp's multiply-add is 64 FLOP."""
    head = (
        "`product`",
        "wavefronts a shared load",
        "on an H200",
        "wavefronts of loads for each multiply-add of a warp",
    )
    rows = []
    for one in examples:
        shared, flops = runs.of(one, "load", "shared"), one.variant.kernel.flops_of(one.problem)
        rows.append((one.words, shared.each, runs.on_h200(one, SHARED_LOAD), f"{shared.total / (flops / 64):.2f}"))
    return table(head, rows)


def limits(runs: Runs, examples: Sequence[Example]) -> list[str]:
    """What was refused, with the rule's words; what was not has run."""
    head = ("`window`", "bytes a block", "blocks at once on a multiprocessor", "what happens")
    rows = []
    for one in examples:
        size = 1024 * int(one.values["kib"])
        if one.refused:
            rows.append((one.words, f"{size}", "–", f"refused: {one.refused[0]}"))
            continue
        ends = "fails" if runs.trace(one).diagnostics else "runs"
        opted = ", with the opt-in" if size > H200.shared_bytes_static else ""
        blocks = residency(H200, one.variant.launch.threads, size).blocks
        rows.append((one.words, f"{size}", f"{blocks}", f"{ends}{opted}"))
    return table(head, rows)


TABLES: Mapping[str, tuple[Callable[[Runs, Sequence[Example]], list[str]], tuple[Example, ...]]] = {
    "request": (request, (PLAIN,)),
    "strides": (strides, (PLAIN, *STRETCHES, TURNS)),
    "alignment": (both_ways, (PLAIN, LATE)),
    "structs": (both_ways, (STRUCTS, ARRAYS)),
    "words": (words, (PLAIN, WORDS)),
    "tile": (both_ways, (STRIDED, TILE32)),
    "banks": (banks, BANKS),
    "padding": (padding, (TILE32, TILE33, SWIZZLED)),
    "barriers": (barriers, (FIRST, SECOND)),
    "reuse": (reuse, (PLAIN, WINDOWS[0])),
    "traffic": (traffic, (NAIVE, PRODUCT, *REGISTERS)),
    "operands": (operands, (PRODUCT, *REGISTERS)),
    "limits": (limits, WINDOWS),
}
"""What stands between the markers of a name: the function that makes it, and its examples."""


def block(runs: Runs, name: str) -> str:
    """A table with its markers."""
    make, examples = TABLES[name]
    runs.prepare(one for one in examples if not one.refused)
    return "\n".join([f"<!-- {name} -->", *make(runs, examples), f"<!-- end of {name} -->"])


def renewed(page: str, runs: Runs) -> str:
    return MARKED.sub(lambda match: block(runs, match.group(2)), page)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if the page is out of date")
    given = parser.parse_args()
    old = PAGE.read_text(encoding="utf-8")
    with Runs() as runs:
        new = renewed(old, runs)
    if given.check and new != old:
        raise SystemExit(f"out of date: {PAGE.name}. Run python benchmarks/memory_page.py")
    if new != old:
        PAGE.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
