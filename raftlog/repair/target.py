"""A replica to repair, and the errors of a repair.

Leaves to others: the repair (``repairer``), and when it is retried (``scheduler``).
"""

from __future__ import annotations

from dataclasses import dataclass

from raftlog.types import GroupId, NodeId


@dataclass(frozen=True, slots=True)
class RepairTarget:
    """A damaged and closed replica of this broker, and its group's other replicas according to the metadata.

    The voters may be other replicas: each log names its voters, and ``Repairer`` asks those, too.
    """

    group_id: GroupId
    directory: str
    peers: tuple[NodeId, ...]


class CannotRepair(Exception):
    """A repair did not succeed this time; the message says why."""


class NeedsFullResync(CannotRepair):
    """No other log has the missing data: the replica needs a full resync from its leader's log start."""


class NeedsOperator(CannotRepair):
    """No peer can help, and a full resync is impossible: an operator must act."""
