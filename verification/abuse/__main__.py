"""Runs attacks: ``python -m verification.abuse --seed 7 --seconds 60``, or ``--attack NAME``.

The exit status is 1 if a guarantee was broken, an event loop was blocked, or memory grew beyond its bound.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial

from verification.abuse.bad_inputs import SEED, mixed
from verification.abuse.suite import ATTACKS, run_suite
from verification.abuse.target import AT_ONCE, Attack


def main() -> None:
    """Run the named attacks, or else the random requests that the seed determines."""
    parser = argparse.ArgumentParser(prog="python -m verification.abuse", description=__doc__)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--attack", action="append", default=[], help="part of the name of an attack")
    options = parser.parse_args()
    attacks = [each for each in ATTACKS if any(part in each.name for part in options.attack)]
    drawn = partial(mixed, seed=options.seed, seconds=options.seconds)
    found = run_suite(
        attacks or [Attack(f"requests of seed {options.seed}", drawn, AT_ONCE * 16, is_strict=True)],
        scale=options.scale,
        tell=lambda result: print(
            f"{result.name}: {result.line}\n  {dict(result.responses.most_common())}", flush=True
        ),
    )
    beyond = [f"{result.name}: beyond its bounds" for result in found.results if not result.keeps_bounds]
    print(*(found.failures or ["no guarantee was broken"]), *beyond, sep="\n")
    sys.exit(1 if found.failures or beyond else 0)


if __name__ == "__main__":
    main()
