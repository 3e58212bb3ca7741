"""Linearizable reads: when a leader may answer with the index that a read must wait for (thesis 6.4).

A read is answered once two conditions hold. A quorum has echoed a heartbeat round that began after the
request: this proves that there was no other leader meanwhile. And the leader's commit index has reached all
entries that earlier leaders may have committed.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from raftlog.core.member import Member
from raftlog.core.ready import ReadConfirmed
from raftlog.types import Index, NodeId, Token


@dataclass(frozen=True, slots=True)
class _Read:
    token: Token
    index: Index  # the read waits until this index is committed
    round: int  # the first heartbeat round that can confirm the read


class ReadIndex:
    """The linearizable reads that wait at one leader, in the order of their requests."""

    __slots__ = ("_awaited_round", "_confirmed_round", "_member", "_proven_index", "_reads")

    def __init__(self, member: Member, proven_index: Index) -> None:
        """Start without reads. ``proven_index``: the last index that earlier leaders may have committed."""
        self._member = member
        self._proven_index = proven_index
        self._reads: deque[_Read] = deque()
        self._awaited_round = 0  # the newest round whose echoes may still come
        self._confirmed_round = 0  # the newest round echoed by a quorum

    def __bool__(self) -> bool:
        return bool(self._reads)

    @property
    def needs_round(self) -> bool:
        """Whether a heartbeat round must begin for waiting reads. Rounds run one at a time and are shared."""
        return (
            bool(self._reads)
            and self._reads[-1].round > self._awaited_round
            and self._confirmed_round >= self._awaited_round
        )

    def ask(self, token: Token, current_round: int) -> None:
        """Queue a read for the first heartbeat round that begins after now."""
        index = max(self._member.commit_index, self._proven_index)
        self._reads.append(_Read(token, index, current_round + 1))

    def round_began(self, heartbeat_round: int) -> None:
        """Note that the leader has sent the heartbeats of this round."""
        self._awaited_round = heartbeat_round

    def expect_no_echo(self) -> None:
        """Wait for no more echoes of the running round, so that the next read can begin a round."""
        self._awaited_round = self._confirmed_round

    def confirm(self, heartbeat_round: int) -> None:
        """Note that a quorum has echoed this round, and answer the reads that it confirms."""
        self._confirmed_round = heartbeat_round
        self.settle()

    def settle(self) -> None:
        """Answer every read whose round is confirmed and whose index is committed."""
        reads = self._reads
        while (
            reads and reads[0].round <= self._confirmed_round and reads[0].index <= self._member.commit_index
        ):
            read = reads.popleft()
            self._member.settle(ReadConfirmed(read.token, read.index))

    def refuse_all(self, leader: NodeId | None) -> None:
        """Refuse every waiting read: the member no longer leads."""
        while self._reads:
            self._member.refuse(self._reads.popleft().token, leader)
