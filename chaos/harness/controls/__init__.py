"""Systems that lose acknowledged writes: if the harness finds no lost write in them, the harness is broken.

Each module has ``run(seed, directory)``, which builds such a system, injects faults as the harness does, and
gives the history of its clients to the checkers of the harness.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlResult:
    """The checkers' result for a system that loses acknowledged writes."""

    name: str
    is_guilty: bool  # whether the checkers found a lost write; False is a failure of the harness
    lost: int  # acknowledged values that the final read did not return
    acknowledged: int
    detail: str  # one line about the run and its result
