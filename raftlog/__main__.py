"""Entry point of the ``raftlog`` script and of ``python -m raftlog``.

The entry point is in this package because no other project uses the name ``raftlog``. Other projects also
have packages that are called ``api``, ``broker``, ``groups``, ``partitions``, ``queues``, ``transactions``,
``delayed`` or ``chaos``. A wheel therefore holds raftlog's packages of these names in a folder that is on no
import path, so that they hide no other package. Whatever ``PYTHONPATH`` and the current directory hold, the
programs of this package import the packages that were installed with it.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Final

OURS: Final = ("api", "broker", "groups", "partitions", "queues", "transactions", "delayed", "chaos")
_HERE: Final = Path(__file__).resolve().parent
_IN_WHEEL: Final = _HERE / "_packages"
HOME: Final = str(_IN_WHEEL if _IN_WHEEL.is_dir() else _HERE.parent)
COMMAND: Final = (sys.executable, "-P", "-m", "raftlog")
"""The command that runs ``raftlog`` in a process of its own, whatever the current directory holds."""


class _OurPackages:
    """Finds the packages named in ``OURS`` below the folder ``HOME``; other packages are left to Python."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return PathFinder.find_spec(name, [HOME], target) if name in OURS else None


def use_our_packages() -> None:
    """Make this process import the packages named ``OURS`` from ``HOME``."""
    sys.meta_path.insert(0, _OurPackages)


def command_of(module: str) -> tuple[str, ...]:
    """The command that runs a module as a program, also one of ``OURS`` that ``python -m`` cannot find."""
    run = f"from raftlog.__main__ import run_module; run_module({module!r})"
    return (sys.executable, "-P", "-c", run)


def run_module(module: str) -> None:
    """Run a module as the program of this process."""
    use_our_packages()
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def main() -> None:
    """Run the command line."""
    use_our_packages()
    import_module("api.cli").main()


if __name__ == "__main__":
    main()
