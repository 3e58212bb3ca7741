"""Messages of a leader that the core cannot make itself: bytes of entries, and its resignation.

Decides: how much one append carries, who is so far behind that it must not have all of the disk and the
network (``catch_up`` says how much), and which member a leader that ends calls to campaign. Leaves to
others: what is due to whom (``core``), where the bytes come from (``recent_entries``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Generic, Protocol, TypeVar

from raftlog.core.inputs import AppendCut, AppendDropped
from raftlog.core.messages import AppendRequest, Heartbeat, TimeoutNow
from raftlog.core.ready import Replicate
from raftlog.errors import LogCorrupt, OffsetOutOfRange, Overloaded
from raftlog.node.catch_up import FAR_BYTES
from raftlog.node.group.ports import GroupNetwork, GroupScheduler
from raftlog.node.group.recent_entries import RecentEntries
from raftlog.node.reading import LogBytes, LogChanged, read_batches
from raftlog.storage.filesystem import Buffer
from raftlog.storage.log_storage import ReadableLog
from raftlog.types import GroupId, Index, NodeId, Term

Reply = TypeVar("Reply")

_log = logging.getLogger("raftlog.node")


class Leading(Protocol):
    """The group that replicates."""

    group_id: GroupId

    @property
    def log(self) -> ReadableLog:
        """The log of the group."""

    @property
    def term(self) -> Term:
        """The newest term it has seen."""

    @property
    def is_leader(self) -> bool:
        """Whether it leads in its own eyes."""

    def stop(self, error: BaseException) -> None:
        """Stop the replica, whose log is damaged: it neither votes nor serves from now on."""


class Replication(Generic[Reply]):
    """The way from one group's log to its followers. ``step`` gives an input to the group's core."""

    def __init__(
        self,
        group: Leading,
        entries: RecentEntries[Reply],
        network: GroupNetwork,
        scheduler: GroupScheduler,
        step: Callable[[AppendCut | AppendDropped], None],
    ) -> None:
        self._group = group
        self._entries = entries
        self._network = network
        self._append_bytes_max = network.calls.frame_limits.append_bytes_max
        self._scheduler = scheduler
        self._step = step
        # Bytes that went to a member since an append to it last reached the end of our log.
        self._behind: dict[NodeId, int] = {}
        self._reading: dict[NodeId, asyncio.Task[None]] = {}

    def carry_out(self, order: Replicate) -> None:
        """Send one append; what was not sent as ordered is for the core to know.

        Entries that must be read from the disk leave once they are read. What is ordered for the same
        follower until then would overtake them: it is dropped, and the core hears of that, too.
        """
        if order.first > order.last:
            self._send(order, [])
        elif order.to not in self._reading:
            behind = self._behind.get(order.to, 0)
            if behind > FAR_BYTES and not self._network.catch_up.has_room():
                self._step(AppendDropped(order.to))  # the core asks again with the next heartbeat
                return
            try:
                found = self._entries.recent_bytes(order.first, order.last, self._append_bytes_max)
            except Overloaded:
                self._step(AppendDropped(order.to))
                return
            if found is None:
                self._reading[order.to] = self._scheduler.begin(
                    self._send_from_disk(order), self._group.group_id
                )
            else:
                self._send_entries(order, *found)

    async def _send_from_disk(self, order: Replicate) -> None:
        group = self._group
        found: LogBytes | None = None
        try:
            if group.is_leader:  # else its log may be closed by now
                end = Index(min(order.last, group.log.last_index))
                found = await read_batches(group.log, order.first, end, bytes_max=self._append_bytes_max)
        except (LogChanged, OffsetOutOfRange, Overloaded):
            pass  # retention was faster, or no file could be opened: the core asks for what is there then
        except (LogCorrupt, OSError) as error:
            group.stop(error)
        finally:
            del self._reading[order.to]
        if not group.is_leader or group.term != order.term:
            return
        if found is None:
            self._step(AppendDropped(order.to))
        elif self._send_entries(order, found.last, [found.data]):
            self._step(AppendCut(order.to, found.last))  # whatever was ordered meanwhile

    def _send_entries(self, order: Replicate, last: Index, payload: list[Buffer]) -> bool:
        if last < order.last:
            self._step(AppendCut(order.to, last))
            size_bytes = sum(map(len, payload))
            self._behind[order.to] = self._behind.get(order.to, 0) + size_bytes
            self._network.catch_up.spend(size_bytes)
        else:
            self._behind.pop(order.to, None)
        return self._send(order, payload)

    def _send(self, order: Replicate, payload: list[Buffer]) -> bool:
        request = AppendRequest(
            term=order.term, previous=order.previous, spans=(), commit_index=order.commit_index
        )
        is_sent = self._network.send(self._group.group_id, order.to, request, payload)
        if not is_sent:
            self._step(AppendDropped(order.to))
        return is_sent

    def call_election(self, term: Term, match_index: Mapping[NodeId, Index]) -> None:
        """Say that this leader of ``term`` ends while its broker goes on: its followers may be quiescent.

        The one that is furthest stands at once. The others unquiesce, and campaign in time should that fail.
        """
        others = match_index.keys() - {self._network.node_id}
        peers = sorted(sorted(others), key=match_index.__getitem__, reverse=True)
        for peer in peers:
            wake = Heartbeat(term=term, commit_index=Index(-1), round=0)
            self._network.send(self._group.group_id, peer, wake)
        for peer in peers:
            if self._network.send(self._group.group_id, peer, TimeoutNow(term=term)):
                return
