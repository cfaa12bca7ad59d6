"""The command line. `click` and `rich` are imported here and nowhere else."""

from __future__ import annotations

import errno
import signal
import sys
import threading
import traceback
import warnings

import click

from autotile import __version__
from autotile.cli import doctor, explain, inspect, search, transfer, verify
from autotile.errors import EXIT_FAILED, EXIT_INTERRUPTED, AutotileError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="autotile")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.pass_context
def autotile(context: click.Context, debug: bool) -> None:
    """Find, prove and ship the fastest version of a CUDA kernel for each GPU."""


for room in (search, inspect, explain, transfer, verify, doctor):
    for command in room.COMMANDS:
        autotile.add_command(command)


def _show_warning(message: Warning | str, *place: object, **more: object) -> None:
    """A warning reads like any other word to the user: what is the matter, not where in the code it was noticed."""
    click.echo(f"autotile: {message}", err=True)


def main(arguments: list[str] | None = None) -> None:
    """Runs a command and leaves with its exit code: 0 ok, 1 failed, 2 usage, 3 no device or toolchain, 130 stopped."""
    given = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in given
    warnings.showwarning = _show_warning
    if threading.current_thread() is threading.main_thread():
        for name in ("SIGTERM", "SIGHUP"):  # a polite kill, or a closed terminal, saves and cleans up as Ctrl-C does
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) != signal.SIG_IGN:  # nohup is left alone
                signal.signal(number, signal.default_int_handler)
    try:
        result = autotile.main(args=[a for a in given if a != "--debug"], prog_name="autotile", standalone_mode=False)
    except click.exceptions.Abort:  # how click passes an interrupt on
        click.echo(f"interrupted{'; what was measured is saved' if 'search' in given[:1] else ''}", err=True)
        code = EXIT_INTERRUPTED
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except AutotileError as error:
        if debug:
            traceback.print_exc()
        click.echo(f"autotile: {error}", err=True)
        code = error.exit_code
    except BrokenPipeError:  # the reader of our output, such as `head`, has gone
        sys.stderr.close()
        code = 0
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        click.echo(f"autotile: the output cannot be written: {error.strerror}", err=True)
        code = EXIT_FAILED
    else:
        code = result if isinstance(result, int) else 0
    sys.exit(code)
