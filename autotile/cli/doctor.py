"""`autotile doctor`: what works on this machine, and the fix for what does not."""

from __future__ import annotations

import click

from autotile.cli.options import json_option, say, write_json
from autotile.errors import EXIT_FAILED, EXIT_OK


@click.command()
@json_option
def doctor(json_path: str | None) -> int:
    """Check Python, GPU, compilers and the store; print a fix under each line that fails.

    Exits with 1 when neither a GPU nor the emulator can be used here, or nothing can be saved.
    """
    from dataclasses import asdict

    from autotile.doctor import can_work, diagnose

    findings = diagnose()
    if json_path:
        write_json(json_path, {"findings": [asdict(finding) for finding in findings]})
        if json_path == "-":
            return EXIT_OK if can_work(findings) else EXIT_FAILED
    marks = {True: "ok  ", False: "FAIL", None: "–   "}
    for finding in findings:
        say(f"{marks[finding.ok]} {finding.name:<18} {finding.detail}")
        if finding.ok is False and finding.fix:
            say(f"     fix: {finding.fix}")
    return EXIT_OK if can_work(findings) else EXIT_FAILED


COMMANDS = (doctor,)
