"""What a leader says to its followers that the core cannot: bytes of entries, and last words.

Decides: how much one append carries, who is so far behind that it must not have all of the disk and the
network (``catch_up`` says how much), and whom a leader that ends calls to stand in its place. Leaves to
others: what is due to whom (``core``), where the bytes come from (``applier``).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Final, Protocol

from raftlog.core.inputs import AppendCut, PeerUnreachable
from raftlog.core.messages import AppendRequest, Heartbeat, TimeoutNow
from raftlog.core.ready import Replicate
from raftlog.node.catch_up import FAR_BYTES
from raftlog.node.group_ports import GroupEnvironment
from raftlog.storage.filesystem import Buffer
from raftlog.types import GroupId, Index, NodeId, Term

APPEND_BYTES_MAX: Final = 1 << 20  # of one AppendRequest
_log = logging.getLogger("raftlog.node")


class EntryBytes(Protocol):
    """Who has the entries' bytes."""

    def bytes_to_send(self, first: Index, last: Index, bytes_max: int) -> tuple[Index, list[Buffer]]:
        """Whole batches from ``first`` on, at least one, about ``bytes_max``; the last index of them."""


class Replication:
    """The way from one group's log to its followers."""

    def __init__(self, group_id: GroupId, entries: EntryBytes, environment: GroupEnvironment) -> None:
        self._group_id = group_id
        self._entries = entries
        self._environment = environment
        # Bytes that went to a member since an append to it last reached the end of our log.
        self._behind: dict[NodeId, int] = {}

    def carry_out(self, order: Replicate) -> Iterator[AppendCut | PeerUnreachable]:
        """Send one append; what was not sent as ordered is for the core to know."""
        request = AppendRequest(
            term=order.term, previous=order.previous, spans=(), commit_index=order.commit_index
        )
        payload: list[Buffer] = []
        if order.first <= order.last:
            behind = self._behind.get(order.to, 0)
            rate = self._environment.catch_up
            if behind > FAR_BYTES and not rate.has_room():
                yield PeerUnreachable(order.to)  # not now: the core asks again with the next heartbeat
                return
            last, payload = self._entries.bytes_to_send(order.first, order.last, APPEND_BYTES_MAX)
            if last < order.last:
                yield AppendCut(order.to, last)
                size_bytes = sum(map(len, payload))
                self._behind[order.to] = behind + size_bytes
                rate.spend(size_bytes)
            elif behind:
                del self._behind[order.to]
        if not self._environment.send(self._group_id, order.to, request, payload):
            yield PeerUnreachable(order.to)

    def call_election(self, term: Term, match_index: Mapping[NodeId, Index]) -> None:
        """Say that this leader of ``term`` ends while its broker lives: its followers may be asleep.

        The one that is furthest stands at once. The others wake, and stand in time should that fail.
        """
        others = match_index.keys() - {self._environment.node_id}
        peers = sorted(sorted(others), key=match_index.__getitem__, reverse=True)
        for peer in peers:
            wake = Heartbeat(term=term, commit_index=Index(-1), round=0)
            self._environment.send(self._group_id, peer, wake)
        for peer in peers:
            if self._environment.send(self._group_id, peer, TimeoutNow(term=term)):
                return
