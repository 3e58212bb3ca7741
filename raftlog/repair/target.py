"""A replica that is to be repaired, and what may stand in the way.

Decides nothing: what is done is in ``repairer``, when it is tried again in ``scheduler``.
"""

from __future__ import annotations

from dataclasses import dataclass

from raftlog.types import GroupId, NodeId


@dataclass(frozen=True, slots=True)
class RepairTarget:
    """A damaged and closed replica of this broker, and the other replicas that the metadata name.

    The voters may be others: each log names them, and ``Repairer`` asks those, too.
    """

    group_id: GroupId
    directory: str
    peers: tuple[NodeId, ...]


class CannotRepair(Exception):
    """The repair did not work this time; the message says what it waits for."""


class NeedsFullResync(CannotRepair):
    """No other log has what this one lacks: it needs a full resync from its leader's log start."""


class NeedsOperator(CannotRepair):
    """No peer can help, and it cannot begin anew either: somebody must look after it."""
