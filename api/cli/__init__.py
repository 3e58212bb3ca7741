"""The command line: ``raftlog …``.

Decides: the names of commands and options, what is printed, exit codes. Leaves to others: the
work itself (the client, ``api.server``, ``api.cluster_files``). A command's module is imported when
the command is called, and what it needs when it runs, so that ``raftlog --help`` answers at once.

Exit codes: 0 done; 1 refused or failed, and it surely did not happen; 2 wrong usage; 3 unknown
whether it happened; 4 nobody could be reached.
"""

from __future__ import annotations

import signal
import sys


def main() -> None:
    """Entry point of the ``raftlog`` script."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C amid imports ends the process without a word
    try:
        from api.cli.commands import app
    except ModuleNotFoundError as error:
        sys.stderr.write(
            f"the command line needs more packages ({error.name}): pip install 'raftlog[server]'\n"
        )
        sys.exit(1)
    app()
