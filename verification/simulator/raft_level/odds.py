"""Draws the random parameters of a run of bare cores."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Final

from verification.simulator.side_draws import beside

AIMED: Final = ("after a vote", "after winning", "after a commit", "after a sync", "change after winning")
"""Kinds of faults that are injected at critical moments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreOdds:
    """The parameters of a run: most are probabilities. ``timed`` and ``aimed`` have them by kind of fault,
    without kinds that cannot happen.
    """

    drop: float = 0.0
    repeat: float = 0.0
    delay_steps_max: int = 1
    cut: float = 0.0  # of an append, as by a limit of bytes
    write_delay: float = 0.0  # the probability that a disk makes no progress in a step
    propose: float = 0.0
    read: float = 0.0
    lull: float = 0.0  # probability per step of a pause in the requests
    timed: dict[str, float] = field(default_factory=dict)  # by step
    aimed: dict[str, float] = field(default_factory=dict)  # by moment
    trouble_steps: int = 250  # duration of the phase with faults

    @classmethod
    def drawn(cls, rng: random.Random) -> CoreOdds:
        """Draw the parameters of a run. Each kind of fault is often absent, sometimes rare and sometimes
        frequent.
        """

        def odds(most: float) -> float:
            return rng.choice((0.0, 0.1, 0.3, 1.0)) * most

        timed = {
            "crash": odds(0.06),
            "cut links": rng.choice((0.0, 0.01, 0.02, 0.04)),
            "stall": odds(0.1),
            "replay": odds(0.1),
            "unreachable": odds(0.1),
            "transfer": odds(0.1),
            "campaign": odds(0.1),
            "change membership": rng.choice((0.0, 0.05, 0.3)),
            "cut prefix": odds(0.2),
            "wipe": odds(0.2),
            "forget": odds(0.05),
        }
        aimed = {kind: rng.choice((0.0, 0.0, 0.02, 0.1)) for kind in AIMED}
        drawn = cls(
            drop=odds(0.2),
            repeat=odds(0.4),
            delay_steps_max=rng.choice((1, 1, 2, 5)),
            cut=odds(0.7),
            write_delay=rng.choice((0.0, 0.3, 0.6, 0.8)),
            propose=rng.choice((0.05, 0.3, 0.8)),
            read=odds(0.2),
            timed={kind: chance for kind, chance in timed.items() if chance},
            aimed={kind: chance for kind, chance in aimed.items() if chance},
        )
        drawn = replace(drawn, lull=rng.choice((0.0, 0.01, 0.03)))  # the other parameters stay
        slow = rng.choice((0.0, 0.0, 0.01, 0.03))
        added = {
            "slow links": slow,
            "fill the disk": odds(0.1),
            "absent": rng.choice((0.0, 0.0, 0.0, 0.01)),
        }
        drawn = replace(drawn, timed={**drawn.timed, **{kind: odd for kind, odd in added.items() if odd}})
        return drawn._with_older_copies() if beside(rng).random() < 0.125 else drawn

    def _with_older_copies(self) -> CoreOdds:
        """Return a copy in which deposed leaders return with entries that no other node has, and nodes start
        on older copies of their disks.

        There are few other faults, so that a leader stays until a node starts on a copy, and knows this
        node's entries.
        """
        timed = {kind: min(chance, 0.003) for kind, chance in self.timed.items()}
        return replace(
            self,
            timed={**timed, "older copy": 0.01, "depose": 0.02},
            aimed={"after a truncation": 0.7},
            propose=0.3,
            write_delay=min(self.write_delay, 0.3),
            lull=0.0,
        )


CALM: Final = CoreOdds()
"""Parameters without faults and requests."""
