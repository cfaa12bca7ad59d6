"""`autotile export` and `import`: results per GPU, out and in."""

from __future__ import annotations

from pathlib import Path

import click

from autotile.cli.options import note, say, templates_option
from autotile.errors import EXIT_FAILED, EXIT_OK, NotTuned

FORMATS = ("json", "csv", "markdown", "cuda", "t4")


@click.command()
@click.option("--device", "-d", help="Only this device, by its name or a part of it.")
@click.option("--kernel", "-k", help="Only this kernel, and those that serve under its name.")
@click.option(
    "--format", "-f", "format_", type=click.Choice(FORMATS), default="json", show_default=True, help="What to write."
)
@click.option(
    "--output", "-o", type=click.Path(path_type=Path), help="File, or folder for cuda and t4. Default: stdout."
)
@templates_option
def export(
    device: str | None, kernel: str | None, format_: str, output: Path | None, templates: tuple[Path, ...]
) -> int:
    """Write the best of each problem, per GPU; with --format t4 every trial on record."""
    from autotile.assets import home_dir
    from autotile.kernels import load_kernel
    from autotile.kernels.instead import folders_of
    from autotile.report import export as export_records
    from autotile.store import Store

    read = Store().records if format_ == "t4" else Store().bests
    records = [
        record
        for name in ((None,) if kernel is None else folders_of(kernel, templates))
        for record in read(name)
        if device is None or device.lower() in record.identity.device.lower()
    ]
    if not records:
        raise NotTuned(
            f"nothing saved matches, in {home_dir()}: `autotile list` shows what is there, `autotile search` makes more"
        )
    if format_ == "cuda" and output is None:
        raise click.UsageError("--format cuda writes a folder: name it with -o")
    written = export_records(records, format_, output, lambda name: load_kernel(name, templates))
    if isinstance(written, str):
        say(written)
    else:
        for path in written:
            note(f"wrote {path}")
    return EXIT_OK


@click.command("import")
@click.argument("path", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@templates_option
def import_(path: Path, templates: tuple[Path, ...]) -> int:
    """Take in results that `autotile export` wrote, as json or t4.

    Nothing in PATH is executed or compiled; a result is taken only if its configuration renders from the local
    templates to the very source that was measured.
    """
    from autotile.kernels import load_kernel
    from autotile.report import import_results
    from autotile.store import Store

    summary = import_results(path, Store(), lambda name: load_kernel(name, templates))
    for what, why in summary.refused:
        note(f"refused {what}: {why}")
    say(f"{summary.imported} imported, {summary.known} already there, {len(summary.refused)} refused")
    if summary.imported and not summary.proven:
        note("they are trials: `autotile search` proves the best of them and saves it")
    return EXIT_OK if summary.imported or not summary.refused else EXIT_FAILED


COMMANDS = (export, import_)
