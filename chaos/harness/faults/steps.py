"""How a fault is written: a generator that begins it, yields its target, and ends it when resumed.

It returns how often the fault had an effect; what is counted is in the table of faults. A fault that has had
none when its time is over lasts longer (``until_effective``). ``NoTarget`` may be raised before the ``yield``
only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Final

from chaos.harness.arena import Arena, Draw
from raftlog.testing.waits import LIMIT_S

LOOK_S: Final = 0.1

Steps = Generator[str, None, int]


Inject = Callable[[Arena, Draw], Steps]


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault. ``needs`` are names of abilities; ``is_damage``: data of one broker is lost.

    Two damages never overlap: the cluster is healthy before each of them. No other fault begins while a fault
    that ``is_alone`` lasts. A fault with ``weight`` 2 is drawn twice as often as one with 1.
    """

    name: str
    inject: Inject
    effect: str  # what is counted
    needs: tuple[str, ...] = ()
    is_damage: bool = False
    is_alone: bool = False
    brokers_min: int = 1
    seconds: tuple[float, float] = (1.0, 8.0)  # between which its duration is drawn
    weight: float = 1.0

    @property
    def summary(self) -> str:
        """The first line of its documentation."""
        return (self.inject.__doc__ or "").splitlines()[0]


def until_effective(count: Callable[[], int]) -> int:
    """The effects of a fault, once there is one; 0 if there is none within the limit of waits."""
    deadline = time.monotonic() + LIMIT_S
    while not (effects := count()) and time.monotonic() < deadline:
        time.sleep(LOOK_S)
    return effects
