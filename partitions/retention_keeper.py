"""Gives space back: old segments go, on all replicas of a partition or on none.

Decides: when retention is looked at and that a log start holds for every replica before the leader
shows it. Leaves to others: which segments are too old (``raftlog.storage.retention``) and removing
them in a safe order (the log).

The leader decides for its partition. It goes no further than what every voter is known to hold
durably, so nobody will ever have to be sent what is gone; it has the others cut their logs, and
then its own no further than the least of them did (segments of replicas may end in other places).
Hence whoever leads next begins no earlier than what was shown before, and while a replica is down
nothing goes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from raftlog.errors import InvalidRequest, RaftlogError
from raftlog.node.group_host import GroupHost
from raftlog.node.raft_group import RaftGroup
from raftlog.storage.filesystem import Buffer
from raftlog.storage.retention import RetentionLimits, first_index_to_keep
from raftlog.storage.segmented_log import SegmentedLog
from raftlog.types import GroupId, Index, NodeId

_log = logging.getLogger("raftlog.partitions")

SERVICE: Final = "retention"
CUT_TIMEOUT_MS: Final = 5000


@dataclass(frozen=True, slots=True)
class Kept:
    """One replica here, and what its topic wants kept."""

    group: RaftGroup[None]
    log: SegmentedLog
    limits: RetentionLimits


class _Cut(msgspec.Struct, frozen=True, array_like=True):
    group_id: GroupId
    first_kept: Index


class RetentionKeeper:
    """One broker's part in retention. All on the event loop's thread."""

    def __init__(self, host: GroupHost, replicas: Callable[[], Iterable[Kept]]) -> None:
        self._host = host
        self._replicas = replicas
        host.calls.serve(SERVICE, self._serve)

    async def run(self, interval_ms: int) -> None:
        """Look at every replica now and then, until cancelled."""
        while True:
            await asyncio.sleep(interval_ms / 1000)
            await self.look()

    async def look(self) -> None:
        """Cut the logs of all partitions led here that hold more than their topics want kept.

        Before that, on all replicas, segments that nobody appends to are closed when they are old.
        """
        for kept in list(self._replicas()):
            _close_idle_segment(kept)
            first_kept = self._first_kept(kept)
            if first_kept > kept.log.first_index:
                await self._cut_everywhere(kept, first_kept)
            await asyncio.sleep(0)

    def _first_kept(self, kept: Kept) -> Index:
        group, log = kept.group, kept.log
        if not group.is_ready:
            return log.first_index
        closed = log.closed_segments
        wanted = first_index_to_keep(
            closed,
            log.size_bytes - sum(segment.size_bytes for segment in closed),
            kept.limits,
            now_ms=self._host.clock.wall_ms(),
            commit_index=group.commit_index,
            first_index=log.first_index,
        )
        matches = group.status().match_index
        held_by_all = min((matches.get(voter, Index(-1)) for voter in group.membership.voters), default=-1)
        limit = min(wanted, held_by_all + 1)
        return max((Index(s.last + 1) for s in closed if s.last < limit), default=log.first_index)

    async def _cut_everywhere(self, kept: Kept, first_kept: Index) -> None:
        group = kept.group
        head = msgspec.msgpack.encode(_Cut(group.group_id, first_kept))
        others = sorted(group.membership.voters - {self._host.node_id})
        try:
            starts = await asyncio.gather(*(self._ask(peer, head) for peer in others))
        except RaftlogError as error:
            _log.info("group %s keeps its old segments: a replica does not answer: %s", group.group_id, error)
            return
        group.truncate_prefix(min(first_kept, *starts) if starts else first_kept)

    async def _ask(self, peer: NodeId, head: bytes) -> Index:
        answer, _ = await self._host.calls.call(peer, SERVICE, head, timeout_ms=CUT_TIMEOUT_MS)
        return msgspec.msgpack.decode(answer, type=Index)

    async def _serve(
        self, sender: NodeId, head: bytes, payload: memoryview
    ) -> tuple[bytes, Sequence[Buffer]]:
        try:
            cut = msgspec.msgpack.decode(head, type=_Cut)
        except msgspec.DecodeError as error:
            raise InvalidRequest(f"this is no request to cut a log: {error}") from None
        group = self._host.groups.get(cut.group_id)
        if group is None or sender not in group.membership.voters:
            raise InvalidRequest(f"group {cut.group_id} is not here")
        return msgspec.msgpack.encode(group.truncate_prefix(cut.first_kept)), ()


def _close_idle_segment(kept: Kept) -> None:
    try:
        kept.log.roll_if_due()
    except OSError as error:
        _log.warning("group %s: its old segment stays open: %s", kept.group.group_id, error)
