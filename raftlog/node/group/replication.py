"""Messages of a leader that the core cannot build: entries as bytes, and the call for an election.

Decides: how many bytes one append carries, which member is so far behind that its rate is limited
(``catch_up`` has the rate), and which member a stopping leader calls to campaign. Leaves to
others: which appends are due (``core``), the source of the bytes (``recent_entries``).
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
    """The parts of a group that its replication uses."""

    group_id: GroupId

    @property
    def log(self) -> ReadableLog:
        """The log of the group."""

    @property
    def term(self) -> Term:
        """The newest term that the group has seen."""

    @property
    def is_leader(self) -> bool:
        """Whether the replica believes that it leads."""

    def stop(self, error: BaseException) -> None:
        """Stop the replica because its log is damaged: it no longer votes or serves."""


class Replication(Generic[Reply]):
    """Sends one group's log to its followers. ``step`` passes an input to the group's core."""

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
        # Bytes sent to a member since an append to it last reached the end of this log.
        self._behind: dict[NodeId, int] = {}
        self._reading: dict[NodeId, asyncio.Task[None]] = {}

    def carry_out(self, order: Replicate) -> None:
        """Send one append; report to the core if less was sent than it has ordered.

        Entries that must be read from the disk are sent once they are read. Later orders for the same
        follower would overtake them: these orders are dropped until then, and are reported to the core, too.
        """
        if order.first > order.last:
            self._send(order, [])
        elif order.to not in self._reading:
            behind = self._behind.get(order.to, 0)
            if behind > FAR_BYTES and not self._network.catch_up.has_room():
                self._step(AppendDropped(order.to))  # the core orders it again with the next heartbeat
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
            if group.is_leader:  # otherwise the log may be closed
                end = Index(min(order.last, group.log.last_index))
                found = await read_batches(group.log, order.first, end, bytes_max=self._append_bytes_max)
        except (LogChanged, OffsetOutOfRange, Overloaded):
            pass  # retention was faster, or no file could be opened: the core orders other entries
        except (LogCorrupt, OSError) as error:
            group.stop(error)
        finally:
            del self._reading[order.to]
        if not group.is_leader or group.term != order.term:
            return
        if found is None:
            self._step(AppendDropped(order.to))
        elif self._send_entries(order, found.last, [found.data]):
            self._step(AppendCut(order.to, found.last))  # also for appends ordered meanwhile

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
        """Make followers elect another leader, because this leader of ``term`` stops; they may be quiescent.

        The most advanced follower campaigns at once. The other followers become active, and campaign later if
        it fails.
        """
        others = match_index.keys() - {self._network.node_id}
        peers = sorted(sorted(others), key=match_index.__getitem__, reverse=True)
        for peer in peers:
            wake = Heartbeat(term=term, commit_index=Index(-1), round=0)
            self._network.send(self._group.group_id, peer, wake)
        for peer in peers:
            if self._network.send(self._group.group_id, peer, TimeoutNow(term=term)):
                return
