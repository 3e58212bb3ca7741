"""The driver of one member of one Raft group: runs its core, log and state machine.

Decides: in which order a ``Ready`` is carried out. Leaves to others: consensus (``core``), bytes and the
messages that wait for them (``log_writer``), applying (``applier``), entries for followers (``replication``),
requests that wait (``pending_requests``), when syncs run (``flusher``), network and clock (``group_host``).

The rules of this file: a message that depends on a write is sent only once the write is durable; batches are
applied once, in order; a disk error, except a full disk, ends this replica and not the process; a broken
invariant ends the process.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from raftlog.core.inputs import (
    AppendDropped,
    Campaign,
    HardStateSaved,
    Input,
    LogTruncatedPrefix,
    PeerReachable,
    PeerUnreachable,
    Propose,
    Receive,
    SnapshotInstalled,
    Tick,
    TransferLeadership,
    WriteFinished,
)
from raftlog.core.membership import Membership
from raftlog.core.messages import Envelope, Heartbeat, Message
from raftlog.core.raft import Raft
from raftlog.core.ready import Ready, Role, RoleChange
from raftlog.errors import (
    CommitUnknown,
    InvariantViolated,
    LogCorrupt,
    MachineFailed,
    NotLeader,
    RecordTooLarge,
    StorageFull,
)
from raftlog.exhaustion import exhaustion
from raftlog.node.group.applier import Applier, Restored
from raftlog.node.group.leader_requests import LeaderRequests
from raftlog.node.group.log_changer import LogChanger
from raftlog.node.group.log_writer import LogWriter
from raftlog.node.group.membership_watch import MembershipWatch
from raftlog.node.group.pending_requests import Proposal, UncommittedBytes
from raftlog.node.group.ports import GroupEnvironment, GroupListener
from raftlog.node.group.recent_entries import RecentEntries
from raftlog.node.group.replica_health import ReplicaHealth
from raftlog.node.group.replication import Replication
from raftlog.node.group.snapshot_transfer import SnapshotTransfer
from raftlog.records.batch import Batch, stamp
from raftlog.state_machine import StateMachine
from raftlog.storage.filesystem import is_disk_full
from raftlog.storage.log_storage import DiskWork, LogChange, LogStorage, after
from raftlog.types import EntryId, GroupId, Index, NodeId, Term

Reply = TypeVar("Reply")

_TICK: Final = Tick()
_log = logging.getLogger("raftlog.node")


class RaftGroup(LeaderRequests[Reply]):
    """The driver of one member of one group. All methods belong to the event loop's thread."""

    def __init__(
        self,
        group_id: GroupId,
        core: Raft,
        log: LogStorage,
        machine: StateMachine[Batch, Reply],
        listener: GroupListener,
        environment: GroupEnvironment,
        uncommitted: UncommittedBytes | None = None,
        restored: Restored | None = None,
    ) -> None:
        """Begin to drive the member.

        ``uncommitted``: a bound on bytes that the group shares with other groups. ``restored``: the machine
        already has the newest state of the log.
        """
        node_id = environment.node_id
        health = ReplicaHealth(node_id, core.membership, environment.tick_ms)
        watch = MembershipWatch(node_id, core, listener)
        super().__init__(group_id, node_id, core, log, watch, health)
        self.frame_limits = environment.calls.frame_limits
        self._listener = listener
        self._environment = environment
        self._has_failed = False
        self._was_rejoining = core.is_rejoining
        self._recent: RecentEntries[Reply] = RecentEntries(log, uncommitted)
        self._applier = applier = Applier(log, machine, self._recent, restored)
        self._replication = Replication(self, self._recent, environment, environment, self._step)
        self._writer = LogWriter(log, self._recent, node_id, environment.wall_ms)
        self._changer = LogChanger(log)
        self._is_installing = False  # whether a snapshot is replacing the log
        self._transfer = SnapshotTransfer(
            node_id, group_id, environment.calls, self._install, applier.restoring
        )
        self._campaign_term: Term | None = None  # the term of the newest counted election
        self._is_short = False  # whether a descriptor is missing to read committed batches
        self._apply_slice(core.commit_index)

    @property
    def is_quiescent(self) -> bool:
        """Whether the group needs no ticks until the next input."""
        return self.stopped is not None or (
            self._core.is_quiescent and not self._writer.is_blocked and not self._is_short
        )

    @property
    def read_places(self) -> asyncio.Semaphore:
        """The semaphore of the broker for large reads."""
        return self._environment.read_places

    @property
    def waits_for_room(self) -> bool:
        """Whether entries wait for room on the disk, or for a file descriptor."""
        return self._writer.is_full and self._writer.is_blocked

    @property
    def applied_index(self) -> Index:
        """The index of the newest entry that the machine has applied."""
        return self._recent.applied_index

    @property
    def unapplied(self) -> list[Batch] | None:
        """The batches that the machine has not applied; None if some of them are not in memory."""
        return self._recent.unapplied

    @property
    def has_room(self) -> bool:
        """Whether the disk has room for writes that may not use its reserve."""
        return not self._writer.is_full and self._environment.has_room()

    # Public operations.

    def propose(
        self, batches: Sequence[Batch], *, append_time_ms: int | None = None, frees_room: bool = False
    ) -> Proposal[Reply]:
        """Append batches as one proposal, with offsets, term and, if given, the append time.

        The group may change writable batches in place: the caller must not use them again. A proposal that
        ``frees_room`` may use the disk's reserve, and wait for room. Raises, with nothing written:
        ``NotLeader`` (also while leadership is transferred), ``Overloaded``, ``StorageFull``, and
        ``RecordTooLarge`` for a batch that is too large for a message to a follower.
        """
        if not self.is_leader:
            raise self._not_leader()
        bytes_max, count = self.frame_limits.batch_bytes_max, len(batches)
        for batch in batches:
            count += batch.header.last_offset_delta
            if len(batch.data) > bytes_max:
                raise RecordTooLarge(
                    f"a batch has {len(batch.data)} bytes, more than a message between brokers carries; send "
                    "less at once",
                    limit_bytes=bytes_max,
                )
        self._recent.check_room()
        if not (frees_room or self.has_room):
            raise StorageFull("the leader's disk is full; free space or retry later", retry_after_ms=1000)
        core = self._core
        first = following = Index(core.terms.last_index + 1)
        self._step(Propose(None, count))
        if core.terms.last_index < first + count - 1:
            raise NotLeader("this broker is transferring its leadership; retry", leader=None)
        term = core.term
        stamped: list[Batch] = []
        for batch in batches:
            stamped.append(
                stamp(batch.data, base_offset=following, leader_epoch=term, append_time_ms=append_time_ms)
            )
            following = Index(following + batch.header.last_offset_delta + 1)
        proposal: Proposal[Reply] = Proposal(first, term, stamped)
        self._recent.propose(proposal, stamped)
        return proposal

    def transfer_leadership(self, to: NodeId) -> None:
        """Request a leadership transfer from the core; the listener is called with the result."""
        self._step(TransferLeadership(to))

    def campaign(self) -> None:
        """Hold an election now."""
        self._step(Campaign())

    async def truncate_prefix(self, first_kept: Index) -> Index:
        """Delete whole segments below ``first_kept`` whose state is saved; return the log's new start.

        Followers that still need deleted entries receive a snapshot. A full disk may prevent the deletion.
        """
        if self.stopped is None:
            await self._change(partial(self._prefix_change, first_kept))
        return self.log.first_index

    async def change_log(self, begin: Callable[[], LogChange | None]) -> None:
        """Change the log when its disk is free; do nothing if the replica has stopped."""
        if self.stopped is None:
            await self._change(begin)

    # Called by the host.

    def tick(self) -> None:
        """Count one unit of time. Most ticks produce no work."""
        core = self._core
        if self._writer.is_blocked:
            self._guarded(self._append)
        if self._is_short:
            self._is_short = False
            self._environment.apply_later(self.group_id)
        self.log.tick()
        if self.log.owes_end:
            self._environment.request_sync(self)
        if core.role is Role.LEADER:
            self._health.observe(core, core.unreachable)
        if self._was_rejoining and not core.is_rejoining:
            self._was_rejoining = False
            _log.warning("group %d on broker %d has rejoined", self.group_id, self._environment.node_id)
        if self.stopped is None and not self._is_installing:
            try:
                core.step(_TICK)
            except BaseException as error:
                self._broke(error)
            if core.has_news:
                self._environment.schedule(self.group_id)
        if core.is_quiescent:
            self._health.quiesced_without(core.unreachable)

    def peer_unreachable(self, peer: NodeId) -> None:
        """Handle a peer whose connection broke, or that has been silent for too long."""
        self._step(PeerUnreachable(peer))

    def peer_reachable(self, peer: NodeId) -> None:
        """Handle that an unreachable peer has answered again."""
        self._step(PeerReachable(peer))

    def receive(self, sender: NodeId, message: Message, batches: Sequence[Batch]) -> None:
        """Handle a message; ``batches`` belong to an ``AppendRequest``."""
        if batches:
            if self._core.has_news:
                self.drain()  # staged batches must not mix with the batches of this message
            self._step(Receive(sender, message))
            self.drain(batches)
        else:
            self._step(Receive(sender, message))
            if self._waits.counts_replicas:
                self._waits.replicated(self.replicas_holding)

    def drain(self, received: Sequence[Batch] = ()) -> None:
        """Carry out all work that the core has. ``received``: the batches of the last message."""
        core = self._core
        try:
            while core.has_news and self.stopped is None:
                ready = core.take_ready()
                if ready is not None:
                    self._carry_out(ready, received)
        except BaseException as error:
            self._broke(error)

    def append_written(self) -> None:
        """Append the batches of recent writes, after these were sent to the followers."""
        if self.stopped is None:
            self._guarded(self._append)

    def apply_more(self) -> None:
        """Apply the next slice of committed entries."""
        self._has_backlog = False
        if self.stopped is None and not self._is_installing:
            self._guarded(self._apply)

    def begin_sync(self) -> DiskWork | None:
        """The work to run next on the flusher's thread: a due change of the log, or a sync; None without
        work.
        """
        try:
            change = self._changer.begin()
        except BaseException as error:
            self._broke(error)
            return None
        if change is not None:
            return change
        return None if self.stopped is not None else self._writer.begin_sync()

    def end_sync(self, sync: DiskWork | None, error: OSError | None) -> None:
        """End the sync or the change that has run; send the messages that waited for the sync."""
        if self._changer.is_running:
            self._changed(error)
            return
        if self.stopped is not None:
            return
        if error is not None:
            self.stop(error)
            return
        synced = self._writer.end_sync()
        for write in synced.writes:
            if write.messages:
                self._keep(write.messages)
            self._step(WriteFinished(write.write_id))
        if synced.hard_state is not None:
            self._keep(synced.messages)
            self._step(HardStateSaved(synced.hard_state))
        self.drain()
        self._waits.durable(self._core.writes.durable_index)
        self._note_commit_index()
        if self._transfer.whole is not None:
            self._install()

    def _keep(self, messages: Sequence[Envelope]) -> None:
        """Send the messages of the present term.

        In a later term, this member may have voted for a log without them.
        """
        for envelope in messages:
            if envelope.message.term == self._core.term:
                self._environment.send(self.group_id, envelope.to, envelope.message)

    def _change(self, begin: Callable[[], LogChange | None]) -> asyncio.Future[None]:
        """Queue a change of the log, to run when no other work uses the log's disk."""
        changed = self._changer.ask(begin)
        self._environment.request_sync(self)
        return changed

    def _changed(self, error: OSError | None) -> None:
        """Finish a change that has run. On a full disk nothing has changed, and the group continues."""
        try:
            self._changer.end(error)
        except InvariantViolated as violated:
            self._environment.fail(violated, self.group_id)
        except (OSError, LogCorrupt, MachineFailed) as trouble:
            if self.stopped is not None:
                # No acknowledged entry is lost by this: the next start uses the state on the disk.
                _log.error("group %d on broker %d has closed: %s", self.group_id, self.node_id, trouble)
            elif not (isinstance(trouble, OSError) and is_disk_full(trouble)):
                self.stop(trouble)
        self._environment.request_sync(self)
        if self.stopped is None:
            self._guarded(self._writer.try_append)
            if self._core.commit_index > self._recent.applied_index:
                self._guarded(self._apply)
            self.drain()

    def stop(self, error: BaseException) -> None:
        """End this replica: it neither votes nor serves until it is opened again."""
        if self.stopped is None:
            _log.error("group %d on broker %d stops: %s", self.group_id, self._environment.node_id, error)
            self._has_failed = True
            self._environment.replica_failed(self.group_id, error)
            if self._core.role is Role.LEADER:
                self._replication.call_election(self._core.term, self._core.match_index)
            self._end(error)

    def leave(self) -> None:
        """Stop voting and serving; pending requests end with an unknown outcome.

        Running syncs may complete.
        """
        if self.stopped is None:
            self._end(CommitUnknown("the replica is closing", committed=None))

    def close(self) -> asyncio.Future[None]:
        """Leave the group; save the machine's state, sync and close the log.

        The future is done at the end.
        """
        self.leave()
        return self._change(self._close_change)

    def _close_change(self) -> LogChange | None:
        checkpoint = None if self._has_failed else self._applier.checkpoint(self.log.last_index)
        return self.log.close_change(checkpoint)

    # Carrying out a Ready.

    def _step(self, event: Input) -> None:
        if self.stopped is None and not (self._is_installing and self._may_write(event)):
            try:
                self._core.step(event)
            except BaseException as error:
                self._broke(error)
            self._environment.schedule(self.group_id)

    def _may_write(self, event: Input) -> bool:
        """Whether the core must not receive this input while its log is replaced; such messages
        are dropped.
        """
        if isinstance(event, Receive) and isinstance(heartbeat := event.message, Heartbeat):
            return heartbeat.term != self.term or heartbeat.commit_index > self.commit_index
        return not isinstance(event, AppendDropped | PeerReachable | PeerUnreachable | SnapshotInstalled)

    def _carry_out(self, ready: Ready, received: Sequence[Batch]) -> None:
        for settled in ready.settled:
            self._waits.settle(settled)
        if ready.write is not None:
            self._writer.write(ready.write, received)
            if not ready.replicate:
                self._append()
        for order in ready.replicate:
            self._replication.carry_out(order)
        if ready.write is not None and ready.replicate:
            self._environment.append_soon(self.group_id)  # followers begin meanwhile
        for envelope in ready.send:
            self._environment.send(self.group_id, envelope.to, envelope.message)
        if self._core.commit_index > self._recent.applied_index and not self._has_backlog:
            self._apply()
        if self._waits.counts_replicas:
            self._waits.replicated(self.replicas_holding)
        if ready.membership is not None or self._watch.may_have_news:
            self._membership_seen(ready.membership)
        if ready.fetch_snapshot is not None:
            self._transfer.want(ready.fetch_snapshot)
        if ready.role_change is not None:
            self._role_changed(ready.role_change)

    def _append(self) -> None:
        self._writer.try_append()
        self._environment.request_sync(self)

    def _membership_seen(self, new: Membership | None) -> None:
        if new is not None:
            self._health.apply_membership(new)
            self._environment.watch_peers(new.members)
        committed = self._watch.look()
        if committed is not None:
            self._waits.membership_committed(committed)

    def _prefix_change(self, first_kept: Index) -> LogChange | None:
        before = self.log.first_index

        def forgotten() -> None:
            last = Index(self.log.first_index - 1)
            if last >= before:
                self._step(LogTruncatedPrefix(EntryId(self.log.term_at(last), last)))

        return self._applier.prefix_change(first_kept, self._core.writes.durable_index).then(forgotten)

    def _install(self) -> None:
        """Replace the log with the received snapshot if that is newer; while a write is unfinished, wait for
        it.
        """
        if self._transfer.whole is None or self._is_installing:
            return
        self.drain()
        if self.stopped is None and self._transfer.may_install(self._core):
            self._is_installing = True
            self._change(self._install_change).add_done_callback(self._install_ended)

    def _install_change(self) -> LogChange | None:
        request, state, become = self._transfer.taken()

        def installed() -> None:
            self._applier.installed(request.snapshot.index, state, become)
            self._step(SnapshotInstalled(request.snapshot, request.membership))
            self._note_commit_index()
            self._listener.commit_advanced(request.snapshot.index)

        change = self.log.install_change(request.snapshot, request.membership, state)
        return after(change, installed)

    def _install_ended(self, _: asyncio.Future[None]) -> None:
        """End an installation that was carried out, has failed, or was dropped."""
        self._is_installing = False
        self._install()  # another snapshot may have arrived meanwhile

    def _apply(self) -> None:
        """Apply the committed entries, except entries that a full disk keeps out of the log."""
        commit_index = Index(min(self._core.commit_index, self.log.last_index))
        self._apply_slice(commit_index)
        self._note_commit_index()
        if not self._has_backlog or self.is_ready:
            self._waits.ready()
        self._listener.commit_advanced(min(commit_index, self._recent.applied_index))

    def _apply_slice(self, commit_index: Index) -> None:
        try:
            self._has_backlog = not self._applier.apply_up_to(commit_index)
        except OSError as error:
            if exhaustion(error) is None:
                raise
            self._has_backlog = self._is_short = True  # the next tick tries again
            self._environment.schedule(self.group_id)
            return
        if self._has_backlog:
            self._environment.apply_later(self.group_id)

    def _end(self, error: BaseException) -> None:
        self.stopped = error
        self._transfer.drop()
        self._changer.leave()
        self._lose_leadership()
        self._listener.replica_stopped(error)

    def _note_commit_index(self) -> None:
        """Store a commit hint, at most the durable index: after a power loss, later entries may
        be replaced.
        """
        durable_index = self._core.writes.durable_index
        self.log.note_commit_index(Index(min(self._core.commit_index, durable_index)))
        if self._applier.is_checkpoint_due:
            self._change(partial(self._applier.checkpoint_change, durable_index))

    def _role_changed(self, change: RoleChange) -> None:
        self._count_election(change)
        if change.role is Role.LEADER:
            self._ready_at = (change.term, self._core.last_index)
            self._health.forget()
            self._waits.ready()
        else:
            self._lose_leadership()
        self._waits.role_changed()
        self._listener.role_changed(change.role, change.term, change.leader)

    def _count_election(self, change: RoleChange) -> None:
        if change.role not in (Role.CANDIDATE, Role.LEADER):
            return
        elections = self._environment.elections
        elections.started += change.term != self._campaign_term  # a single voter becomes leader at once
        elections.won += change.role is Role.LEADER
        self._campaign_term = change.term

    def _lose_leadership(self) -> None:
        self._recent.leadership_lost()
        self._waits.leadership_lost()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self._broke(error)

    def _broke(self, error: BaseException) -> None:
        """Stop the replica or the process because an order of the core failed. Raises cancellations again."""
        match error:
            case OSError() | LogCorrupt():
                self.stop(error)
            case MachineFailed():
                self.stop(exhaustion(error.__cause__) or error)
            case InvariantViolated() | Exception():
                # A core hands out work only once: if the work is lost, the state of the core is wrong.
                self._environment.fail(error, self.group_id)
            case _:
                raise error
