"""Defines the record of a run, which is written to ``report.json``. Times are seconds since the run began."""

from __future__ import annotations

import msgspec

from chaos.harness.scenario import Scenario


class Ability(msgspec.Struct, frozen=True, kw_only=True):
    """A requirement of faults (a program, a right, a kernel feature), and whether this machine has it."""

    name: str
    is_there: bool
    detail: str  # the version found, or the missing part and the remedy


class Injected(msgspec.Struct, frozen=True, kw_only=True):
    """A fault as it was carried out: its times, its target and its effects."""

    fault: str
    target: str  # "broker 2", "link 2 -> 1", "clients of broker 3"
    begun_s: float
    ended_s: float
    effects: int  # how often it had an effect; 0 is a failure of the harness
    effect: str  # the counted effect, such as "connections reset"


class Leadership(msgspec.Struct, frozen=True, kw_only=True):
    """A change of leader: the leader of a partition from this time on; None while the partition has no
    leader.
    """

    at_s: float
    topic: str
    partition: int
    leader: int | None
    term: int


class Phase(msgspec.Struct, frozen=True, kw_only=True):
    """A phase of the run: ``quiet``, ``faults``, ``heal``, ``final read``."""

    name: str
    begun_s: float
    ended_s: float


class ShownAnomaly(msgspec.Struct, frozen=True, kw_only=True):
    """An anomaly, and the operations around it as one line for each."""

    kind: str
    partition: int
    detail: str
    operations: tuple[str, ...]


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """The number of values with each outcome, and of lost or duplicated values among the acknowledged
    values.
    """

    acknowledged: int
    failed: int
    unknown: int
    lost: int
    duplicated: int
    commits: int = 0  # acknowledged commits of single offsets, each a register
    committed_reads: int = 0  # of these registers
    transactions_committed: int = 0
    transactions_aborted: int = 0  # their values are not counted as failed
    transactions_unknown: int = 0
    ok_rate: float  # share of acknowledged sends
    ok_rate_quiet: float  # share for sends that began and ended without a fault


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The record of one run. ``problems`` are problems of the harness or of brokers, such as a fault without
    an effect.
    """

    verdict: str  # valid, invalid or unknown
    command: str
    version: str
    machine: str
    started_at: str  # ISO 8601, UTC
    abilities: tuple[Ability, ...]
    scenario: Scenario
    phases: tuple[Phase, ...]
    injected: tuple[Injected, ...]
    leaderships: tuple[Leadership, ...]
    counts: Counts
    anomalies: tuple[ShownAnomaly, ...]
    problems: tuple[str, ...]
    proxy_restarts: int = 0  # restarts of a proxy server that hung; each ended all connections
    left_out: tuple[str, ...] = ()  # faults without a target, and the reason
    history_offset_s: float  # time of the history (``history.jsonl``) at which the run began
