"""Draws the random parameters of brokers, which become their settings.

A scenario changes the parameters that it needs; so ``Machine`` has no code for any scenario.
"""

from __future__ import annotations

from dataclasses import dataclass

from raftlog.node.frame_limits import FRAME_LIMITS, FrameLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOdds:
    """Parameters that all brokers of a run share. In a run with racks there are six brokers, two in each
    rack.
    """

    tick_ms: int
    election_ticks: int
    quiesce_ticks: int
    retention_check_interval_ms: int = 60_000
    trash_delay_ms: int = 3_600_000
    offsets_partitions: int = 16
    transactions_partitions: int = 1
    delayed_partitions: int = 1
    unused_ms: int | None = (
        None  # time until unused groups, ids and sinks are forgotten; None: longer than a run
    )
    restore_after_ms: int = 300_000  # longer than any run
    restore_moves_max: int = 10
    balance_after_ms: int = 120_000
    balancing_moves_max: int = 2
    has_racks: bool = False
    ages_disks: bool = False  # frequently; always so in runs where files are lost
    frame_limits: FrameLimits = FRAME_LIMITS

    def rack(self, node: int) -> str | None:
        """Return the name of a broker's rack."""
        return "abc"[(node - 1) % 3] if self.has_racks else None
