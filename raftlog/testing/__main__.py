"""Runs the process of the testing kit's brokers: ``python -P -m raftlog.testing``."""

from __future__ import annotations

import gc
import sys
from importlib import import_module

from raftlog.__main__ import use_our_packages
from raftlog.extras import install_command


def main() -> None:
    """Run the brokers until standard input ends."""
    gc.disable()  # until everything is imported
    use_our_packages()
    try:
        supervisor = import_module("chaos.kit.supervisor")
    except ModuleNotFoundError as error:
        sys.exit(f"the testing kit needs the package {error.name}: {install_command('testing')}")
    supervisor.main()


if __name__ == "__main__":
    main()
