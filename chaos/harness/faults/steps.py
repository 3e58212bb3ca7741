"""How a fault is written: a generator that begins it, yields its target, and ends it when resumed.

It returns how often the fault had an effect; what is counted is in the table of faults. ``NoTarget`` may be
raised before the ``yield`` only.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass

from chaos.harness.arena import Arena, Draw

Steps = Generator[str, None, int]


Inject = Callable[[Arena, Draw], Steps]


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault. ``needs`` are names of abilities; ``is_damage``: data of one broker is lost.

    Two damages never overlap: the cluster is healthy before each of them. A fault with ``weight`` 2 is drawn
    twice as often as one with 1.
    """

    name: str
    inject: Inject
    effect: str  # what is counted
    needs: tuple[str, ...] = ()
    is_damage: bool = False
    brokers_min: int = 1
    seconds: tuple[float, float] = (1.0, 8.0)  # between which its duration is drawn
    weight: float = 1.0

    @property
    def summary(self) -> str:
        """The first line of its documentation."""
        return (self.inject.__doc__ or "").splitlines()[0]
