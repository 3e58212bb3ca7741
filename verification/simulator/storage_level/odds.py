"""The random parameters of the operations on a log."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

USUAL = {
    "append": 10.0,
    "truncate": 2.0,
    "take sync": 6.0,
    "finish sync": 6.0,
    "vote": 1.0,
    "apply": 4.0,
    "retain": 1.0,
    "install": 0.3,
    "fill the disk": 0.5,
    "look": 2.0,
    "wait": 1.0,
}
"""The relative frequency of each operation, by name."""

NEEDED = ("append", "take sync", "finish sync", "vote")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOdds:
    """The parameters of one run. Some operations are often absent, or very frequent."""

    incarnations: int = 6
    steps: int = 60  # of the longest incarnation
    works: dict[str, float] = field(default_factory=lambda: dict(USUAL))
    members: float = 0.1  # of a batch
    failing_syncs: float = 0.0  # of a sync
    power: float = 0.8  # that the machine dies with the process
    midst: float = 0.5  # that an incarnation ends during an operation
    lies_about_syncs: bool = False
    compact: float = 0.0  # after an operation; batches have records with keys then

    @classmethod
    def drawn(cls, rng: random.Random) -> LogOdds:
        """Draw the parameters. Each kind of work is sometimes absent, sometimes rare and sometimes
        frequent.
        """
        works = {
            kind: usual * (1.0 if kind in NEEDED else rng.choice((0.0, 0.3, 1.0, 1.0, 3.0)))
            for kind, usual in USUAL.items()
        }
        return cls(
            incarnations=rng.choice((2, 4, 6, 10)),
            steps=rng.choice((10, 30, 60, 100)),
            works=works,
            members=rng.choice((0.0, 0.1, 0.3)),
            failing_syncs=rng.choice((0.0, 0.0, 0.02, 0.1)),
            power=rng.choice((0.5, 0.8, 1.0)),
            midst=rng.choice((0.3, 0.5, 0.8)),
            compact=rng.choice((0.0, 0.0, 0.05, 0.2)),
        )
