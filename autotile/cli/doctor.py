"""`autotile doctor`: what works on this machine, and the fix for what does not."""

from __future__ import annotations

import click

from autotile.cli.options import json_option, write_json
from autotile.errors import EXIT_OK


@click.command()
@json_option
def doctor(json_path: str | None) -> int:
    """Check Python, GPU, compilers and the store; print a fix under each line that fails."""
    from dataclasses import asdict

    from autotile.doctor import diagnose

    findings = diagnose()
    if json_path:
        write_json(json_path, {"findings": [asdict(finding) for finding in findings]})
        if json_path == "-":
            return EXIT_OK
    marks = {True: "ok  ", False: "FAIL", None: "–   "}
    for finding in findings:
        click.echo(f"{marks[finding.ok]} {finding.name:<18} {finding.detail}")
        if finding.ok is False and finding.fix:
            click.echo(f"     fix: {finding.fix}")
    return EXIT_OK


COMMANDS = (doctor,)
