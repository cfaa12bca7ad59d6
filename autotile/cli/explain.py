"""`autotile explain`: why a configuration is as fast as it is, and what to change."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path

import click

from autotile.cli.options import check_json_path, json_option, note, say, templates_option, write_json
from autotile.cli.point import point_options, read_point
from autotile.errors import EXIT_FAILED, EXIT_OK


@click.command()
@click.argument("kernel")
@point_options
@click.option(
    "--device", "-d", default="auto", envvar="AUTOTILE_DEVICE", show_default=True,
    help="The GPU whose limits and data sheet count: auto (the first, else an H200), cuda:N, emulator:GPU or GPU.",
)  # fmt: skip
@click.option("--svg", "svg_path", metavar="PATH", help="Draw the costliest accesses, to PATH.")
@click.option("--no-changes", is_flag=True, help="Try no other configurations.")
@click.option("--profile", is_flag=True, help="Also count with Nsight Compute, on a GPU.")
@templates_option
@json_option
def explain(
    kernel: str,
    sets: tuple[str, ...],
    preset: str | None,
    dtype: str | None,
    problem: str | None,
    device: str,
    svg_path: str | None,
    no_changes: bool,
    profile: bool,
    templates: tuple[Path, ...],
    json_path: str | None,
) -> int:
    """Explain one configuration of KERNEL: what its memory accesses cost, what bounds it, and what to change.

    Its blocks are traced on the emulator; times are estimates. Nothing is run on a GPU but with --profile.
    """
    from autotile.devices.select import open_device
    from autotile.insight.document import document_of
    from autotile.insight.text import text_of
    from autotile.runtime.explain import device_named, explain_point

    check_json_path(json_path)
    if svg_path and Path(svg_path).suffix not in ("", ".svg"):
        raise click.UsageError(f"--svg {svg_path}: what is written is an SVG; name it .svg")
    if svg_path and Path(svg_path).is_dir():
        raise click.UsageError(f"--svg {svg_path}: that is a folder")
    if svg_path and not Path(svg_path).absolute().parent.is_dir():
        raise click.UsageError(f"--svg {svg_path}: there is no folder {Path(svg_path).absolute().parent}")
    opening = cache(lambda: device_named(device, partial(open_device, note=note)))
    found, asked, configuration = read_point(kernel, sets, preset, dtype, problem, templates, lambda: opening().info)
    explanation = explain_point(found, asked, configuration, opening(), profile=profile, changes=not no_changes)
    if svg_path:
        from autotile.insight.picture import picture

        _write_svg(svg_path, picture(explanation))
    if json_path:
        write_json(json_path, {"explanation": document_of(explanation)})
    if json_path != "-":
        say(text_of(explanation))
    return EXIT_FAILED if explanation.wrong else EXIT_OK


def _write_svg(path: str, drawn: str) -> None:
    try:
        Path(path).write_text(drawn, encoding="utf-8")
    except OSError as error:
        raise click.UsageError(f"--svg {path}: {error.strerror}") from None
    note(f"wrote {path}")


COMMANDS = (explain,)
