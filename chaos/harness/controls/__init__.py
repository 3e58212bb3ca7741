"""Systems that must be found guilty: a harness that finds nothing wrong with them finds nothing at all.

Each module has ``run(seed, directory)``, which builds one such system, breaks it as the harness breaks ours,
and gives the history of its clients to the same checkers.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlResult:
    """The result of the checkers for a system that loses acknowledged writes."""

    name: str
    is_guilty: bool  # whether the checkers found a lost write; False is a failure of the harness
    lost: int  # acknowledged values that the final read did not return
    acknowledged: int
    detail: str  # one line about what was done and found
