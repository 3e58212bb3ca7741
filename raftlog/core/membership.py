"""Who takes part in a Raft group."""

from __future__ import annotations

from dataclasses import dataclass

from raftlog.types import NodeId


@dataclass(frozen=True, slots=True)
class Membership:
    """The members that vote. (Learners and joint changes will stand here too.)"""

    voters: frozenset[NodeId]
