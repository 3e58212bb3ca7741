"""``python -m tests.simulation.mutants``; see ``hunt``."""

from __future__ import annotations

import sys

from tests.simulation.mutants.hunt import main

if __name__ == "__main__":
    sys.exit(main())
