"""Settings of a Raft group; all time is counted in ticks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from raftlog.types import NodeId

ELECTION_TICKS: Final = 9  # a leader silent for so long is lost; elections start within twice this time
HEARTBEAT_TICKS: Final = 2  # several heartbeats fit into an election timeout, so one may be lost
QUIESCE_TICKS: Final = 40  # an idle group becomes quiescent after this time


@dataclass(frozen=True, slots=True)
class RaftSettings:
    """The node id and the timeouts of a Raft group. Pre-vote and check-quorum are always on."""

    node_id: NodeId
    election_ticks: int = ELECTION_TICKS
    heartbeat_ticks: int = HEARTBEAT_TICKS
    appends_in_flight_max: int = 16  # per peer; bounds the memory for a slow follower
    quiesce_ticks: int = QUIESCE_TICKS
    announces_commits: bool = False  # to followers at once, not with the next append or heartbeat
    campaign_rank_offset: int = 0  # equal on all members: rotates their campaign ranks

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for settings that contradict one another."""
        if not 1 <= self.heartbeat_ticks < self.election_ticks:
            raise ValueError(
                f"heartbeat_ticks is {self.heartbeat_ticks}: choose from 1 to election_ticks - 1 "
                f"({self.election_ticks - 1}), so that a live leader is heard in time"
            )
        if self.appends_in_flight_max < 1:
            raise ValueError(f"appends_in_flight_max is {self.appends_in_flight_max}: choose 1 or more")
        if self.quiesce_ticks < self.election_ticks:
            raise ValueError(
                f"quiesce_ticks is {self.quiesce_ticks}: "
                f"choose election_ticks ({self.election_ticks}) or more"
            )
