"""``python -m tests.planted_bugs``: see that each planted bug is seen.

Looks for all bugs, for the named ones, or with ``--changed REVISION`` for those whose edited files or tests
differ from the merge base with that revision. Writes nothing. Exit status 1 if a bug is not seen or no longer
applies, or if a test or seed fails without a bug.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.planted_bugs import BUGS
from tests.planted_bugs.search import JOBS, changed_since, search


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.planted_bugs", description=__doc__)
    parser.add_argument("names", nargs="*", help="look for these only")
    parser.add_argument("--changed", metavar="REVISION", help="look for those that a change touches")
    parser.add_argument("--jobs", type=int, default=JOBS, help="processes at a time: %(default)s")
    options = parser.parse_args()
    if unknown := set(options.names) - {bug.name for bug in BUGS}:
        parser.error(f"no planted bug is called {', '.join(sorted(unknown))}")
    changed = changed_since(options.changed) if options.changed else None
    chosen = [
        bug
        for bug in BUGS
        if (not options.names or bug.name in options.names) and (changed is None or bug.files & changed)
    ]
    began = time.monotonic()
    wrong = search(chosen, options.jobs) if chosen else []
    figures = f"planted={len(chosen)} wrong={len(wrong)} seconds={time.monotonic() - began:.0f}"
    print("\n".join([*wrong, figures]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
