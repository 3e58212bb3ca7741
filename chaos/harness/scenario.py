"""What a run injects and when: a value, drawn from a seed or read from a file."""

from __future__ import annotations

import msgspec


class PlannedFault(msgspec.Struct, frozen=True, kw_only=True):
    """One fault: when it begins, and how long it lasts.

    ``target`` names what it happens to, such as ``broker 2`` or ``leader``; without it, ``seed`` draws one.
    """

    at_s: float  # since the begin of the faults
    fault: str  # a name of ``raftlog chaos faults``
    seconds: float
    target: str | None = None
    seed: int = 0


class Scenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All faults of a run, in the order of their begin."""

    seed: int
    brokers: int
    seconds: float  # of the phase with faults
    faults: tuple[PlannedFault, ...]
