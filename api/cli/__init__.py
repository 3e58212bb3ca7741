"""The command line: ``raftlog …``.

Decides: the names of commands and options, output, exit codes. Leaves to others: the work itself (the client,
``api.server``, ``broker.cluster_files``). A command's module is imported when the command is called, and its
dependencies when it runs, so that ``raftlog --help`` is fast. Commands that only read ask brokers through
``reading``, all others through the client (``connection``). The common parts of all commands are in
``common_options`` and ``output``.

Exit codes: 0 done; 1 refused or failed, and definitely not carried out; 2 wrong usage; 3 outcome unknown; 4
no broker could be reached; 5 done, except for rejected lines.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Final

from api.cli.closed_streams import escape_unknown_characters, replace_closed_streams
from api.stop_signals import interrupt_on_signals

if TYPE_CHECKING:
    import click


VARIABLE: Final = "_RAFTLOG_COMPLETE"
"""The environment variable by which a shell requests completions."""


def main() -> None:
    """Run the ``raftlog`` script."""
    replace_closed_streams()
    escape_unknown_characters()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C during imports ends the process silently
    try:
        from api.cli.commands import app
    except ModuleNotFoundError as error:
        from raftlog.extras import install_command

        sys.stderr.write(
            f"the command line needs more packages ({error.name}): {install_command('server')}\n"
        )
        sys.exit(1)
    interrupt_on_signals()
    if VARIABLE in os.environ:
        _complete(app)
    try:
        app()
    except OSError as error:  # from --help and --version: the output is closed, or its disk is full
        sys.exit(f"error: {error}")


def _complete(app: click.Command) -> None:
    """Print completions for the shell. Prints no errors: they would appear in the line that the user
    types.
    """
    with open(os.devnull, "w") as sys.stderr:
        try:
            app(complete_var=VARIABLE)
        except Exception:
            sys.exit(0)
