"""Entry point of the ``raftlog`` script and of ``python -m raftlog``.

It is in this package because nobody else uses its name. Other projects have packages that are called ``api``,
``groups``, ``partitions`` or ``chaos``, too. Such a package in a directory of ``PYTHONPATH``, or in the
current directory, would be imported in place of ours.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final

OURS: Final = ("api", "groups", "partitions", "chaos")
COMMAND: Final = (sys.executable, "-P", "-m", "raftlog")
"""The same in a process of its own, for which the current directory hides nothing."""


def main() -> None:
    """Run the command line, unless a package of ours is hidden by another one of its name."""
    home = Path(__file__).resolve().parent.parent
    for name in OURS:
        spec = find_spec(name)
        found = list(spec.submodule_search_locations or [spec.origin or ""]) if spec is not None else []
        if found and home not in [Path(place).resolve().parent for place in found]:
            sys.stderr.write(
                f"error: {found[0]} hides the package {name!r} of raftlog in {home}; "
                "leave its folder out of PYTHONPATH, or run `raftlog` and not `python -m raftlog` there\n"
            )
            sys.exit(2)
    import_module("api.cli").main()


if __name__ == "__main__":
    main()
