"""Defines the form of a fault: a generator that begins the fault, yields its target, and ends it when
resumed.

The generator returns how often the fault had an effect; the table of faults says which effects are counted. A
fault that has had no effect when its time has passed lasts longer (``until_effective``). ``NoTarget`` may be
raised before the ``yield`` only.
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
    """One kind of fault. ``needs`` are names of abilities; ``is_damage`` means that data of one broker is
    lost.

    Two damages never overlap: the cluster is healthy before each damage. While a fault that ``is_alone``
    lasts, no other fault begins. A fault with ``weight`` 2 is drawn twice as often as a fault with weight 1.
    """

    name: str
    inject: Inject
    effect: str  # the effect that is counted
    needs: tuple[str, ...] = ()
    is_damage: bool = False
    is_alone: bool = False
    brokers_min: int = 1
    seconds: tuple[float, float] = (1.0, 8.0)  # range of its random duration
    weight: float = 1.0

    @property
    def summary(self) -> str:
        """The first line of the docstring of the fault's generator."""
        return (self.inject.__doc__ or "").splitlines()[0]


def until_effective(count: Callable[[], int]) -> int:
    """Wait until ``count`` returns an effect of the fault; return the number of effects, 0 after a time
    limit.
    """
    deadline = time.monotonic() + LIMIT_S
    while not (effects := count()) and time.monotonic() < deadline:
        time.sleep(LOOK_S)
    return effects
