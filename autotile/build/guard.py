"""Compilers that never outlive this process, however it ends: SIGKILL runs no clean-up of ours.

A small shell, the watcher, reads a pipe whose write end this process alone keeps. The kernel closes it with the
process; the watcher then kills the process groups of the compilers that were running, and ends. A compiler's group is
put on the list before the compiler starts, by the shell that becomes the compiler, so that no moment is left in which
it could be missed. (A watcher inside each group would be simpler, but would leave a zombie for every compile where a
container's first process reaps no orphans.)
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import subprocess
import threading
from collections.abc import Sequence

_SHELL = "/bin/sh"
_CANNOT_START = "autotile-cannot-start"
# The standard error is the watcher's pipe until the compiler takes over, which then writes both into its own output.
_ENTER = 'echo "+ $$" >&2; exec "$@" 2>&1'
_WATCH = """
groups=
while read -r sign group; do
    if [ "$sign" = + ]; then
        groups="$groups $group"
    else
        kept=
        for one in $groups; do [ "$one" = "$group" ] || kept="$kept $one"; done
        groups=$kept
    fi
done
for group in $groups; do kill -s KILL -- "-$group"; done
"""


class _Watcher:
    def __init__(self) -> None:
        read_end, self.pipe = os.pipe()  # not inherited: only what is handed the write end has it
        os.set_blocking(self.pipe, False)  # a watcher that was stopped must not stop a search
        try:
            self._process = subprocess.Popen(
                [_SHELL, "-c", _WATCH],
                cwd="/",
                env={},
                stdin=read_end,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # what a terminal sends to our group does not reach it
            )
        except OSError:
            os.close(self.pipe)
            raise
        finally:
            os.close(read_end)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def remove(self, group: int) -> None:
        with contextlib.suppress(BrokenPipeError, BlockingIOError):
            os.write(self.pipe, b"- %d\n" % group)

    def close(self) -> None:
        """Lets it kill what is still on its list, and waits for it."""
        os.close(self.pipe)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=1.0)

    def disown(self) -> None:
        """In a forked child, whose copy of the write end would keep the watcher waiting."""
        os.close(self.pipe)
        self._process.returncode = 0  # not a child of this process: not to be waited for, or warned of


_watcher: _Watcher | None = None
_lock = threading.Lock()


def wrap(command: Sequence[str]) -> list[str]:
    """The command line that runs a command, as its group's leader, under the watcher. Start it with `errors_to()`."""
    return [_SHELL, "-c", _ENTER, _CANNOT_START, *command] if os.name == "posix" else list(command)


def errors_to() -> int:
    """What a wrapped command is to be started with as its standard error; its own goes to its standard output.

    Raises OSError when the watcher cannot be started.
    """
    global _watcher
    if os.name != "posix":
        return subprocess.STDOUT
    with _lock:
        if _watcher is not None and not _watcher.alive:  # somebody killed it
            _watcher.close()
            _watcher = None
        if _watcher is None:
            _watcher = _Watcher()
        return _watcher.pipe


def release(group: int) -> None:
    """Takes a group off the watcher's list: its number may soon be somebody else's."""
    with _lock:
        if _watcher is not None:
            _watcher.remove(group)


def start_error(command: Sequence[str], status: int, text: str) -> OSError | None:
    """The error of a wrapped command that could not be started, as without the wrapping; None if it was started."""
    if status not in (126, 127) or not text.startswith(_CANNOT_START):
        return None
    number = errno.ENOENT if status == 127 else errno.EACCES
    return OSError(number, os.strerror(number), command[0])


def _close() -> None:
    global _watcher
    with _lock:
        if _watcher is not None:
            _watcher.close()
            _watcher = None


def _disown() -> None:
    global _watcher, _lock
    _lock = threading.Lock()  # another thread may have held it when the process was forked
    if _watcher is not None:
        _watcher.disown()
        _watcher = None


atexit.register(_close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown)
