"""Deletes old segments of the hosted logs.

Decides: when retention is checked, and for how long it waits for members that are reachable and behind.
Leaves to others: which segments are too old (``raftlog.storage.retention``), by which clock
(``raftlog.node.cluster_time``), deleting them in a safe order (the log), and followers that still need
deleted entries (snapshots).

With ``RetentionLimits`` the leader decides for its group. It writes the new log start into the log; once that
is committed, all members may cut their logs up to it. The segments of replicas may have different ends:
readers see the replicated log start. A member that is down does not delay retention. A member whose log still
begins too early is asked again at every check. With ``SnapshotRetention`` each replica decides for its own
log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Final, assert_never

import msgspec

from raftlog.errors import InvalidRequest, RaftlogError
from raftlog.hosting.tenant import SnapshotRetention, Tenant
from raftlog.node.group.raft_group import RaftGroup
from raftlog.node.group_host import GroupHost
from raftlog.node.rpc import handler_of
from raftlog.node.rpc_classes import CallClass, Service
from raftlog.records.control import log_start_batch
from raftlog.storage.retention import RetentionLimits, first_index_to_keep
from raftlog.storage.segmented_log import SegmentedLog
from raftlog.types import GroupId, Index, NodeId, Term

_log = logging.getLogger("raftlog.hosting")

SERVICE: Final = Service("retention", CallClass.REPLICAS)
CUT_TIMEOUT_MS: Final = 5000
COMMIT_S: Final = 5.0  # the time that a check waits for the new log start of one group
GRACE_LOOKS: Final = 10  # the number of checks for which a log waits for members that are behind


@dataclass(frozen=True, slots=True)
class Kept:
    """One serving replica, and the limits of its log."""

    group: RaftGroup[object]
    log: SegmentedLog
    limits: RetentionLimits


@dataclass(slots=True)
class _LeaderEpoch:
    """Observations of one group in one leader epoch."""

    term: Term
    waited: int = 0  # checks spent waiting for members that are behind
    awaiting_archive: int = 0  # bytes kept here only until they are archived
    starts: dict[NodeId, Index] = field(
        default_factory=dict
    )  # the starts of members' logs according to their last answers


class _Cut(msgspec.Struct, frozen=True, array_like=True):
    group_id: GroupId
    first_kept: Index


class RetentionManager:
    """Deletes old segments on one broker. For the event loop's thread only."""

    def __init__(self, host: GroupHost, tenants: Callable[[], Iterable[Tenant]]) -> None:
        self._host = host
        self._tenants = tenants
        self._epochs: dict[GroupId, _LeaderEpoch] = {}
        host.calls.serve(SERVICE, handler_of(_Cut, self._serve))

    def awaiting_archive(self, group_id: GroupId) -> int:
        """The bytes of a log led here that are kept only because they are not archived, at the last check."""
        epoch = self._epochs.get(group_id)
        return 0 if epoch is None else epoch.awaiting_archive

    async def run(self, interval_ms: int) -> None:
        """Check every replica at intervals, until cancelled."""
        while True:
            await asyncio.sleep(interval_ms / 1000)
            await self.look()

    async def look(self) -> None:
        """Cut all logs on this broker that are longer than their rules allow.

        Old segments that get no more appends are closed first, so that they can be deleted.
        """
        led: set[GroupId] = set()
        for tenant in list(self._tenants()):
            retention, group = tenant.retention, self._host.groups.get(tenant.group_id)
            if retention is None or group is None or group.stopped is not None:
                continue
            with self._host.blames(group.group_id), self._host.duties.step(f"retention of {tenant.name}"):
                match retention:
                    case SnapshotRetention():
                        await _trim(group, retention)
                    case RetentionLimits():
                        assert isinstance(group.log, SegmentedLog)
                        await self._look_at(tenant, Kept(group, group.log, retention), led)
                    case _:
                        assert_never(retention)
            await asyncio.sleep(0)
        self._epochs = {group_id: epoch for group_id, epoch in self._epochs.items() if group_id in led}

    async def _look_at(self, tenant: Tenant, kept: Kept, led: set[GroupId]) -> None:
        clock = self._host.clock
        if (cluster_ms := clock.trusted_ms()) is not None:  # the earlier clock decides, the later one dates
            kept.log.date(max(cluster_ms, clock.wall_ms()))
        _close_idle_segment(kept)
        group = kept.group
        if group.is_ready:
            led.add(group.group_id)
            epoch = self._epochs.get(group.group_id)
            if epoch is None or epoch.term != group.term:
                epoch = _LeaderEpoch(group.term)
            self._epochs[group.group_id] = epoch
            first_kept = self._first_kept(kept, epoch)
            if first_kept > kept.limits.log_start and not await self._advance(group, first_kept):
                return
            limits = tenant.retention
            if isinstance(limits, RetentionLimits) and limits.log_start and group.is_ready:
                await self._cut_everywhere(kept, epoch, _segment_start(kept.log, limits.log_start))

    async def _advance(self, group: RaftGroup[object], log_start: Index) -> bool:
        """Replicate a new log start; return whether this broker knows that the group has committed it."""
        try:
            batch = log_start_batch(log_start, timestamp_ms=self._host.clock.wall_ms())
            proposal = group.propose([batch], frees_room=True)
            async with asyncio.timeout(COMMIT_S):
                await asyncio.shield(proposal.outcome)
        except (RaftlogError, TimeoutError) as error:
            _log.info("group %s: the log start stays below %s: %s", group.group_id, log_start, error)
            return False
        return True

    def _first_kept(self, kept: Kept, epoch: _LeaderEpoch) -> Index:
        group, log = kept.group, kept.log
        closed = log.closed_segments
        active_bytes = log.size_bytes - sum(segment.size_bytes for segment in closed)

        def wanted_by(limits: RetentionLimits) -> Index:
            return first_index_to_keep(
                closed,
                active_bytes,
                limits,
                now_ms=self._host.clock.trusted_ms(),
                commit_index=group.commit_index,
                first_index=log.first_index,
            )

        wanted = unarchived = wanted_by(kept.limits)
        if kept.limits.archived_up_to is not None:
            unarchived = wanted_by(replace(kept.limits, archived_up_to=None))
        epoch.awaiting_archive = sum(
            segment.size_bytes for segment in closed if wanted <= segment.base < unarchived
        )
        limit = min(wanted, self._held_back(group, epoch, wanted))
        return _segment_start(log, limit)

    def _held_back(self, group: RaftGroup[object], epoch: _LeaderEpoch, wanted: Index) -> Index:
        """The first index that reachable members still need; ``wanted`` if none is behind, or after some
        checks.
        """
        status = group.status()
        matches = {**status.learner_match_index, **status.match_index}
        behind = [
            Index(match + 1)
            for node, match in matches.items()
            if match + 1 < wanted
            and node not in status.awaiting_snapshot
            and node != self._host.node_id
            and self._host.is_reachable(node)
        ]
        epoch.waited = epoch.waited + 1 if behind and epoch.waited < GRACE_LOOKS else 0
        return min(behind) if epoch.waited else wanted

    async def _cut_everywhere(self, kept: Kept, epoch: _LeaderEpoch, first_kept: Index) -> None:
        group = kept.group
        head = msgspec.msgpack.encode(_Cut(group.group_id, first_kept))
        begin_earlier = [
            node
            for node in sorted(group.membership.members - {self._host.node_id})
            if epoch.starts.get(node, Index(0)) < first_kept and self._host.is_reachable(node)
        ]
        starts = await asyncio.gather(
            *(self._ask(node, head) for node in begin_earlier), return_exceptions=True
        )
        for node, start in zip(begin_earlier, starts, strict=True):
            if isinstance(start, RaftlogError):
                _log.info("group %s: broker %s has not cut its log: %s", group.group_id, node, start)
            elif isinstance(start, BaseException):
                raise start
            else:
                epoch.starts[node] = start
        if first_kept > kept.log.first_index:
            await group.truncate_prefix(first_kept)

    async def _ask(self, peer: NodeId, head: bytes) -> Index:
        answer, _ = await self._host.calls.call(peer, SERVICE, head, timeout_ms=CUT_TIMEOUT_MS)
        return msgspec.msgpack.decode(answer, type=Index)

    async def _serve(self, sender: NodeId, cut: _Cut) -> Index:
        group = self._host.groups.get(cut.group_id)
        if group is None or sender not in group.membership.members:
            raise InvalidRequest(f"group {cut.group_id} is not open on this broker")
        return await group.truncate_prefix(cut.first_kept)


def _segment_start(log: SegmentedLog, limit: Index) -> Index:
    """The start that the log would have after the deletion of every closed segment below ``limit``."""
    return max((Index(s.last + 1) for s in log.closed_segments if s.last < limit), default=log.first_index)


async def _trim(group: RaftGroup[object], retention: SnapshotRetention) -> None:
    if group.log.size_bytes > retention.log_bytes_max:
        await group.truncate_prefix(Index(group.applied_index - retention.entries_kept))


def _close_idle_segment(kept: Kept) -> None:
    try:
        if kept.limits.closed_up_to is not None:
            kept.log.roll_up_to(kept.limits.closed_up_to)
        kept.log.roll_if_due()
    except OSError as error:
        _log.warning("group %s: cannot close its old segment: %s", kept.group.group_id, error)
