"""Makes a file of autotile/data/tuned/ of exported results, for kernels as they are today.

    python benchmarks/ship.py tuned.json [more.json …] --out autotile/data/tuned/nvidia-h200.json

Of several files the later ones win, problem by problem. A record whose text has changed since (a comment, an unused
name) is built with the compiler of its record: where the machine code is the very same, it gets the identity of today's
text; where it is not, it is refused, and has to be searched again. Needs that compiler, but no GPU. Exit code 1 where a
record was refused.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from autotile.build import Builder
from autotile.codegen import render, template_digest
from autotile.kernels import load_kernel
from autotile.report import export
from autotile.store import best_of
from autotile.store.serial import from_object
from autotile.types import Binary, Record, Source, Target


class Refused(Exception):
    """Why a record cannot ship."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, help="results, as `autotile export --format json` writes them")
    parser.add_argument("--out", type=Path, required=True, help="the file to write")
    given = parser.parse_args()
    taken, refused = [], 0
    for record in merged([records_of(path) for path in given.files]):
        try:
            taken.append(shipped(record, build))
        except Refused as reason:
            refused += 1
            print(f"refused: {record.problem.label}: {reason}")
    export(taken, "json", given.out, cache(load_kernel))
    print(f"{len(taken)} records in {given.out}, {refused} refused")
    if refused:
        raise SystemExit(1)


def records_of(path: Path) -> list[Record]:
    document = json.loads(path.read_text(encoding="utf-8"))
    return [from_object(found) for device in document["devices"] for found in device["records"]]


def merged(files: Sequence[Sequence[Record]]) -> list[Record]:
    """One record a problem and device: the best of the last file that has one."""
    found: dict[tuple[str, object], Record] = {}
    for records in files:
        groups: dict[tuple[str, object], list[Record]] = {}
        for record in records:
            groups.setdefault((record.identity.device, record.problem), []).append(record)
        found |= {key: best for key, group in groups.items() if (best := best_of(group)) is not None}
    return list(found.values())


def shipped(record: Record, build: Callable[[Source, Record], Binary]) -> Record:
    """The record with today's identity. Raises Refused where it is not proven, or not of today's machine code."""
    if not record.proven or record.identity.estimated:
        raise Refused("it is an estimate, or was not proven")
    kernel = load_kernel(record.problem.kernel)
    # What could not be tuned yet was as it is by default.
    record = replace(record, configuration=kernel.configuration(record.configuration))
    if kernel.launch_of(record.problem, record.configuration) != record.launch:
        raise Refused("it is launched in another way today")
    source = render(kernel, record.problem, record.configuration)
    if source.digest != record.source_digest and build(source, record).digest != record.binary_digest:
        raise Refused("today's text is another program than the one that was measured")
    identity = replace(record.identity, template=template_digest(kernel))
    return replace(record, source_digest=source.digest, identity=identity)


def build(source: Source, record: Record) -> Binary:
    """Raises Refused where the record's compiler is not the one at hand."""
    with Builder(Target("cuda", record.identity.arch), jobs=1) as builder:
        if builder.compiler != record.identity.compiler:
            raise Refused(f"its text has changed, and here is {builder.compiler}, not its {record.identity.compiler}")
        return builder.build(source)


if __name__ == "__main__":
    main()
