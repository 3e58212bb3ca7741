"""Controls of the harness: systems that lose acknowledged writes. If it does not notice, it is broken."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ControlResult:
    """What the checkers found in the history of one control."""

    name: str
    is_guilty: bool  # it lost acknowledged writes, as it must
    lost: int
    acknowledged: int
    detail: str
