"""One member of one Raft group: a core, its log and its state machine, driven.

Decides: in which order a ``Ready`` is carried out. Leaves to others: consensus (``core``), bytes
and promises (``log_writer``), applying (``applier``), entries for followers (``replication``), who waits
(``proposals``), when syncs run (``flusher``), network and clock (``group_host``).

The rules of this file: promises leave only after their write is durable; batches are applied
once, in order; an error of the disk, other than a full one, ends this replica and not the
process; a broken invariant ends the process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Generic, TypeVar, TypeVarTuple, Unpack

from raftlog.core.inputs import (
    Campaign,
    ChangeMembership,
    ConfirmRead,
    Input,
    LogTruncatedPrefix,
    PeerUnreachable,
    Propose,
    Receive,
    SnapshotInstalled,
    Tick,
    TransferLeadership,
    Unquiesce,
    WriteFinished,
)
from raftlog.core.membership import Membership
from raftlog.core.messages import Message
from raftlog.core.raft import Raft
from raftlog.core.ready import Ready, Role, RoleChange
from raftlog.errors import CommitUnknown, InvariantViolated, LogCorrupt, NotLeader, StorageFull
from raftlog.node.applier import Applier
from raftlog.node.group_ports import GroupEnvironment, GroupListener
from raftlog.node.group_view import GroupView
from raftlog.node.hand_over import hand_over
from raftlog.node.log_writer import LogWriter
from raftlog.node.membership_watch import MembershipWatch
from raftlog.node.proposals import Proposal, Waits
from raftlog.node.replica_health import ReplicaHealth
from raftlog.node.replication import Replication
from raftlog.node.snapshot_transfer import SnapshotTransfer
from raftlog.records.batch import Batch, stamp
from raftlog.state_machine import StateMachine
from raftlog.storage.log_storage import LogStorage, Sync
from raftlog.types import METADATA_GROUP, EntryId, GroupId, Index, NodeId

Reply = TypeVar("Reply")
Arguments = TypeVarTuple("Arguments")

_TICK: Final = Tick()
_log = logging.getLogger("raftlog.node")


class RaftGroup(GroupView, Generic[Reply]):
    """One member of one group. All methods belong to the event loop's thread."""

    def __init__(
        self,
        group_id: GroupId,
        core: Raft,
        log: LogStorage,
        machine: StateMachine[Batch, Reply],
        listener: GroupListener,
        environment: GroupEnvironment,
    ) -> None:
        node_id = environment.node_id
        health = ReplicaHealth(node_id, core.membership, environment.tick_ms)
        super().__init__(group_id, node_id, core, log, MembershipWatch(node_id, core, listener), health)
        self._listener = listener
        self._environment = environment
        self._has_failed = False
        self._was_rejoining = core.is_rejoining
        self._applier = Applier(log, machine)
        self._replication = Replication(self, self._applier, environment, self._step)
        self._writer = LogWriter(log, self._applier, node_id)
        self._waits: Waits[Reply] = Waits(None if group_id == METADATA_GROUP else environment.uncommitted)
        arrived = partial(self._guarded, self._install)
        self._transfer = SnapshotTransfer(node_id, group_id, environment.calls, arrived)
        for _ in self._applier.apply_up_to(core.commit_index):
            pass  # committed in an earlier life: nobody waits for the replies

    @property
    def is_asleep(self) -> bool:
        """Needs no ticks until something happens."""
        return self.stopped is not None or (self._core.is_asleep and not self._writer.is_blocked)

    @property
    def applied_index(self) -> Index:
        """Newest index that the machine has taken in."""
        return self._applier.applied_index

    # What one may do.

    def propose(self, batches: Sequence[Batch], *, append_time_ms: int | None = None) -> Proposal[Reply]:
        """Append batches as one proposal, stamped with offsets, term and, if given, the append time.

        Raises, with nothing written: ``NotLeader``, also while leadership is handed over, ``Overloaded``,
        ``StorageFull``.
        """
        if not self.is_leader:
            raise self._not_leader()
        self._waits.check_room()
        if self._writer.is_blocked or not self._environment.has_room():
            raise StorageFull("the leader's disk is full; free space or retry later", retry_after_ms=1000)
        first = following = Index(self._core.last.index + 1)
        term = self._core.term
        stamped: list[Batch] = []
        for batch in batches:
            stamped.append(
                stamp(batch.data, base_offset=following, leader_epoch=term, append_time_ms=append_time_ms)
            )
            following = Index(following + batch.header.last_offset_delta + 1)
        token = self._waits.token()
        self._step(Propose(token, following - first))
        if self._core.last.index < following - 1:
            raise NotLeader("this broker is handing its leadership over; retry", leader=None)
        proposal: Proposal[Reply] = Proposal(first, term, stamped)
        self._waits.offered(token, proposal)
        return proposal

    async def durable(self, proposal: Proposal[Reply]) -> None:
        """Return once this node has fsynced it. Raises ``CommitUnknown`` when leadership is lost first."""
        self._check_still_leads(proposal)
        if self._core.durable_index < proposal.last:
            await self._waits.until_durable(proposal.last)

    async def replicated(self, proposal: Proposal[Reply], count: int) -> None:
        """Return once ``count`` voters, this leader among them, have fsynced it. Raises ``CommitUnknown``."""
        self._check_still_leads(proposal)
        if self.replicas_holding(proposal.last) < count:
            await self._waits.until_replicated(proposal.last, count)

    async def ready(self) -> None:
        """Return once this leader may judge producers' sequences. Raises ``NotLeader`` when it stops."""
        while not self.is_ready:
            if not self.is_leader:
                raise self._not_leader()
            await self._waits.until_ready()

    async def confirm_read(self) -> Index:
        """An index, applied here, that covers everything acknowledged before the call (ReadIndex).

        Raises ``NotLeader``, also when the disk is so full that it cannot be applied.
        """
        if not self.is_leader:
            raise self._not_leader()
        token, future = self._waits.read()
        self._step(ConfirmRead(token))
        index = await future
        if self.applied_index < index:
            raise NotLeader("the leader's disk is full, and what is committed is not in its log", leader=None)
        return index

    async def change_membership(self, target: Membership) -> None:
        """Return once ``target`` is in force and committed; at once where it is so already.

        Raises ``NotLeader`` and ``InvalidRequest`` with nothing done, ``CommitUnknown`` when leadership is
        lost first: then the change may still be finished, or undone, by another leader. Asking that one
        for the same target is harmless.
        """
        if not self.is_leader:
            raise self._not_leader()
        is_begun = self.membership.left() == target
        if is_begun and self.membership == target and self.is_membership_committed:
            return
        token, future = self._waits.change(target)
        if not is_begun:
            self._step(ChangeMembership(token, target))
        await future

    async def hand_over_to(self, to: NodeId, timeout_ms: int) -> None:
        """Return once another replica leads, ``to`` unless it loses the election.

        Raises ``NotLeader`` and ``InvalidRequest`` with nothing done, or ``LeadershipNotMoved``.
        """
        if not self.is_leader:
            raise self._not_leader()
        await hand_over(
            self, to, lambda: self.transfer_leadership(to), self._waits.until_role_changes, timeout_ms
        )

    def transfer_leadership(self, to: NodeId) -> None:
        """Ask the core to hand over; the listener hears of the result."""
        self._step(TransferLeadership(to))

    def campaign(self) -> None:
        """Hold an election now."""
        self._step(Campaign())

    def truncate_prefix(self, first_kept: Index) -> Index:
        """Delete whole segments below ``first_kept`` whose state is kept; gives the log's new start.

        Who lacks what is gone is sent the state.
        """
        if self.stopped is None:
            before = self.log.first_index
            self._guarded(lambda: self._applier.truncate_prefix(first_kept))
            last = Index(self.log.first_index - 1)
            if last >= before:
                self._step(LogTruncatedPrefix(EntryId(self.log.term_at(last), last)))
        return self.log.first_index

    # What the host calls.

    def tick(self) -> None:
        """One unit of time has passed."""
        if self._writer.is_blocked:
            self._guarded(self._writer.try_append)
            self._environment.request_sync(self.group_id)
        if self._core.role is Role.LEADER:
            self._health.observe(self._core.status())
        if self._was_rejoining and not self._core.is_rejoining:
            self._was_rejoining = False
            _log.warning("group %d on broker %d has rejoined", self.group_id, self._environment.node_id)
        self._step(_TICK)

    def peer_unreachable(self, peer: NodeId) -> None:
        """The link to a peer broke or it has been silent too long."""
        self._step(PeerUnreachable(peer))

    def receive(self, sender: NodeId, message: Message, batches: Sequence[Batch]) -> None:
        """A message came in; ``batches`` belong to an ``AppendRequest``."""
        if batches:
            self.drain()  # what is pending must not mix with what this message brings
            self._writer.bring(batches)
            self._step(Receive(sender, message))
            self.drain()
            self._writer.drop_incoming()
        else:
            self._step(Receive(sender, message))

    def drain(self) -> None:
        """Carry out everything that the core has asked for."""
        self._guarded(self._drain)

    def begin_sync(self) -> Sync | None:
        """What the flusher runs on its thread."""
        return None if self.stopped is not None else self._writer.begin_sync()

    def end_sync(self, sync: Sync | None, error: OSError | None) -> None:
        """A sync has run: release the promises that waited for it."""
        if self.stopped is not None:
            return
        if error is not None:
            self.stop(error)
            return
        for write_id, promises in self._writer.end_sync(sync):
            for envelope in promises:
                self._environment.send(self.group_id, envelope.to, envelope.message)
            self._step(WriteFinished(write_id))
        self.drain()
        if self._transfer.whole is not None:
            self._guarded(self._install)
        self._waits.durable(self._core.durable_index)
        self._note_commit_index()

    def stop(self, error: BaseException) -> None:
        """This replica's life ends: it neither votes nor serves until its process starts again."""
        if self.stopped is None:
            _log.error("group %d on broker %d ends: %s", self.group_id, self._environment.node_id, error)
            self._has_failed = True
            self._environment.replica_failed(error)
            if self._core.role is Role.LEADER:
                self._replication.call_election(self._core.term, self._core.match_index)
            self._end(error)

    def leave(self) -> None:
        """Vote and serve no more; whoever waits is told "unknown". Syncs that are under way may end."""
        if self.stopped is None:
            self._end(CommitUnknown("the replica is closing", committed=None))

    def close(self) -> None:
        """Leave; keep the machine's state, sync and close the log."""
        self.leave()
        try:
            if not self._has_failed:
                self._applier.save_checkpoint(self.log.last_index)  # the log syncs up to it first
            self.log.close()
        except OSError as error:
            # Nothing that was promised is lost by it: the next start goes by what is on the disk.
            _log.error("group %d on broker %d closes: %s", self.group_id, self._environment.node_id, error)

    # How a Ready is carried out.

    def _step(self, event: Input) -> None:
        if self.stopped is None:
            self._guarded(self._core.step, event)
            self._environment.schedule(self.group_id)

    def _drain(self) -> None:
        while self.stopped is None and (ready := self._core.take_ready()) is not None:
            self._carry_out(ready)

    def _carry_out(self, ready: Ready) -> None:
        for settled in ready.settled:
            self._writer.bring(self._waits.settle(settled))
        if ready.write is not None:
            self._writer.write(ready.write, self._environment.wall_ms())
            self._environment.request_sync(self.group_id)
        for order in ready.replicate:
            self._replication.carry_out(order)
        for envelope in ready.send:
            self._environment.send(self.group_id, envelope.to, envelope.message)
        if self._core.commit_index > self._applier.applied_index:
            self._apply()
        if self._waits.counts_replicas:
            self._waits.replicated(self.replicas_holding)
        if ready.membership is not None or self._watch.is_open:
            self._membership_seen(ready.membership)
        if ready.fetch_snapshot is not None:
            self._transfer.want(ready.fetch_snapshot)
        if ready.role_change is not None:
            self._role_changed(ready.role_change)

    def _membership_seen(self, new: Membership | None) -> None:
        if new is not None:
            self._health.reorganize(new)
            self._environment.meet(new.members)
        committed = self._watch.look()
        if committed is not None:
            self._waits.membership_committed(committed)

    def _install(self) -> None:
        """Let a snapshot that has come replace the log, if it is still news; if a write is open, after it."""
        self._drain()
        installed = None if self.stopped else self._transfer.install(self._core, self.log)
        if installed is not None:
            request, state = installed
            self._applier.installed(request.snapshot.index, state)
            self._step(SnapshotInstalled(request.snapshot, request.membership))
            self._note_commit_index()
            self._listener.commit_advanced(request.snapshot.index)

    def _apply(self) -> None:
        """What is committed, but not what a full disk keeps out of the log: acknowledged means readable."""
        commit_index = Index(min(self._core.commit_index, self.log.last_index))
        for header, reply in self._applier.apply_up_to(commit_index):
            self._waits.applied(header, reply)
        self._note_commit_index()
        if self.is_ready:
            self._waits.ready()
        self._listener.commit_advanced(commit_index)

    def _end(self, error: BaseException) -> None:
        self.stopped = error
        self._transfer.drop()
        self._waits.ended()
        self._listener.replica_stopped(error)

    def _note_commit_index(self) -> None:
        """Never beyond what is durable here: a hint must not vouch for entries that a power loss may swap."""
        durable_index = self._core.durable_index
        self.log.note_commit_index(Index(min(self._core.commit_index, durable_index)))
        if self._applier.is_checkpoint_due:
            self._guarded(lambda: self._applier.save_checkpoint(durable_index))

    def _role_changed(self, change: RoleChange) -> None:
        if change.role is Role.LEADER:
            self._ready_at = (change.term, self._core.last.index)
            self._health.forget()
            self._waits.ready()
        else:
            self._waits.leadership_lost()
        self._waits.role_changed()
        self._listener.role_changed(change.role, change.term, change.leader)

    def _guarded(self, work: Callable[[Unpack[Arguments]], None], *arguments: *Arguments) -> None:
        try:
            work(*arguments)
        except InvariantViolated as error:
            self._environment.fail(error, self.group_id)
        except (OSError, LogCorrupt) as error:
            self.stop(error)
        except Exception as error:
            # Work that a core has handed out is never offered again: without it this state is wrong.
            self._environment.fail(error, self.group_id)

    def _check_still_leads(self, proposal: Proposal[Reply]) -> None:
        if not self.is_leader or self._core.term != proposal.term:
            raise CommitUnknown(
                "leadership was lost before the records were known to be kept", committed=None
            )

    def _not_leader(self) -> NotLeader:
        """Also wakes a sleeping group: its leader may be gone without a word."""
        leader = self.leader
        if self._core.is_asleep:
            self._step(Unquiesce())
        known = "no leader is known yet" if leader is None else f"the leader is broker {leader}"
        return NotLeader(f"this broker does not lead the partition; {known}", leader=leader)
