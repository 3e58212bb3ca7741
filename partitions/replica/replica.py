"""One replica of one partition: the log that producers and consumers see.

The Raft log *is* the partition's log, a record's Raft index *is* its offset. Decides: whether a
produced body is appended. Leaves to others: consensus and disk (``raftlog``), sequences
(``producers``), when a produce request is answered (``acks``), what a fetch returns (``reads``), finding
the leader (``gateway``), opening and deleting replicas (``replica_manager``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from operator import attrgetter

from partitions.replica.acks import Placed, acknowledged, check_count, check_in_transaction
from partitions.replica.archiving import Archiving
from partitions.replica.bounded_reads import AskReadIndex, BoundedReads
from partitions.replica.deletion import Deletion
from partitions.replica.machine import PartitionMachine
from partitions.replica.participant import HeldBack, JoinTransaction, Participant, TransactionName
from partitions.replica.producer_admission import ProducerAdmission
from partitions.replica.producers import REFUSALS, Begun, InFlight, Known
from partitions.replica.reads import Reads
from partitions.replica.sealing import Sealing
from partitions.replica.serving import RETRY_AFTER_MS, Serving
from partitions.replica.topic_rules import Body, TopicRules, batches_of
from partitions.replica.transaction_table import OpenTransaction
from partitions.values import (
    NO_RECORD,
    Acks,
    AcksKind,
    AppendReceipt,
    FetchRequest,
    FetchResult,
    PartitionStatus,
    Position,
    TopicConfig,
)
from raftlog.clock import Clock
from raftlog.core.membership import Membership
from raftlog.core.ready import Role
from raftlog.errors import (
    CommitUnknown,
    CorruptBatch,
    InvalidRequest,
    NotEnoughReplicas,
    OutOfOrderSequence,
    PartitionDecommissioned,
    ProducerFenced,
    RaftlogError,
    StorageFull,
)
from raftlog.node.deadline import deadline_in, ms_until
from raftlog.node.group.pending_requests import Proposal
from raftlog.node.group.raft_group import RaftGroup
from raftlog.records.batch import Batch, split_batches
from raftlog.records.control import Archived, Marker, Seal, marker_batch
from raftlog.records.reader import read_records
from raftlog.types import Index, NodeId, Offset, Term, TopicPartition

_HEADER = attrgetter("header")
_PRODUCER_ID = attrgetter("header.producer_id")


class PartitionReplica:
    """One broker's copy of a partition. All methods belong to the event loop's thread.

    Construct a replica, open the Raft group with its ``machine`` and the replica as listener, then ``attach``
    the group. Before ``attach`` calls raise ``NoLeader``.
    """

    def __init__(
        self,
        target: TopicPartition,
        replicas: Sequence[NodeId],
        config: TopicConfig,
        clock: Clock,
        admission: ProducerAdmission | None = None,
        machine: PartitionMachine | None = None,
        join: JoinTransaction | None = None,
        hear: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Without ``join`` the replica refuses transactions.

        ``hear`` fetches the newest topic configuration.
        """
        self.target = target
        self.replicas = tuple(replicas)  # the voters, in the order of the metadata
        self.machine = machine or PartitionMachine()
        self._derived = self.machine.derived
        self._derived_epoch: Term | None = None  # leader epoch in which the derived state may write
        self._clock = clock
        self._admission = admission  # None: all producers are admitted
        self.config = config
        self._rules = TopicRules.of(config, len(self.replicas))
        self._in_flight: InFlight[Proposal[None]] = InFlight(self.machine.producers)
        self._participant = Participant(self.machine.transactions)
        self._join_transaction = join
        self._hear = hear
        self._held_back = HeldBack(clock)
        self._serving = Serving(target)
        self.led = self._serving.led
        self._checking = asyncio.Lock()  # first come, first served
        self._reads = Reads(self._serving, self.machine)
        self._bounded_reads = BoundedReads(self._serving, self.machine, self._reads.waiters)
        self._deletion = Deletion(self._serving, self._reads, self.machine)
        self._archiving = Archiving(self._serving, self._reads, self.machine)
        self._sealing = Sealing(self._serving, self.machine, clock)

    def attach(self, group: RaftGroup[None]) -> None:
        """Serve from ``group`` from now on."""
        self._serving.attach(group)
        self._count(group.membership)
        self._tell_derived()

    @property
    def group(self) -> RaftGroup[None]:
        """The Raft group behind this replica. Raises ``NoLeader`` until it has been attached."""
        return self._serving.group

    @property
    def leader(self) -> NodeId | None:
        """The leader as far as this replica knows; None if unknown, or before ``attach``."""
        return self._serving.leader

    @property
    def high_watermark(self) -> Offset:
        """One past the newest record readers may read here. Raises ``NoLeader`` before ``attach``."""
        return self._reads.high_watermark

    @property
    def log_start_offset(self) -> Offset:
        """The oldest offset that may be read here. Raises ``NoLeader`` before ``attach``."""
        return self._reads.log_start_offset

    @property
    def last_stable_offset(self) -> Offset:
        """Offset below which all transactions have ended. Raises ``NoLeader`` before ``attach``."""
        return self._reads.last_stable_offset

    def open_transactions(self) -> tuple[OpenTransaction, ...]:
        """The transactions without a marker here; empty unless this replica is a ready leader."""
        serving = self._serving
        is_sure = serving.is_attached and not serving.is_deleted and serving.is_ready
        return self.machine.transactions.open if is_sure else ()

    @property
    def producers(self) -> int:
        """The number of producers in the replica's producer table."""
        return len(self.machine.producers)

    @property
    def parked(self) -> int:
        """The number of reads that wait here for new records."""
        return len(self._reads.waiters)

    def reconfigure(self, config: TopicConfig) -> None:
        """Use a new configuration of the topic; pending requests continue with the old configuration."""
        self.config = config
        self._rules = TopicRules.of(config, len(self.replicas))

    def want_seal(self, seal: Seal, writable: int) -> None:
        """Set the seal that the metadata requires, and the number of the topic's writable partitions."""
        self._sealing.want(seal, writable)

    def partition_removed(self) -> None:
        """Stop serving, as in ``topic_deleted``, because the partition was removed from its topic."""
        self._serving.is_removed = True
        self.topic_deleted()

    def topic_deleted(self) -> None:
        """Stop serving, because the topic was deleted. Pending requests end with ``TopicNotFound``."""
        self._serving.is_deleted = True
        self._reads.waiters.wake_all()
        self._tell_derived()

    # Callbacks of the Raft group.

    def role_changed(self, role: Role, term: Term, leader: NodeId | None) -> None:
        """Begin or end a leader epoch; forget the batches in flight, about which only the log decides now."""
        leader_epoch = term if role is Role.LEADER else None
        if leader_epoch != self._serving.leader_epoch:
            self._serving.leader_epoch = leader_epoch
            self._in_flight.clear()
            self._participant.clear()
            self._sealing.new_epoch()
        self._reads.waiters.wake_all()
        self._tell_derived()

    def commit_advanced(self, commit_index: Index) -> None:
        """Note that all batches up to this index are applied, and wake readers that wait for them."""
        self._in_flight.applied(commit_index)
        self._held_back.note(self.machine.transactions.oldest)
        self._reads.waiters.advance(commit_index)
        if self._derived is not None and self._derived_epoch is None:
            self._tell_derived()

    def membership_changed(self, membership: Membership, is_committed: bool) -> None:
        """Use the voters of the membership as the replicas of the partition."""
        self._count(membership)

    def removed(self) -> None:
        """Do nothing: the opener of this replica closes it."""

    def replica_stopped(self, error: BaseException) -> None:
        """Stop serving, because the Raft group of this replica has stopped."""
        self.leave()

    def leave(self) -> None:
        """Stop serving, because the Raft group ends on this broker. A new replica may be opened later."""
        self._serving.leader_epoch = None
        self._in_flight.clear()
        self._participant.clear()
        self._reads.waiters.wake_all()
        self._tell_derived()

    # Calls of producers and consumers.

    async def append(
        self,
        body: Body,
        *,
        acks: Acks,
        timeout_ms: int,
        transactional_id: str | None = None,
        client: str = "",
        led: RaftGroup[None] | None = None,
    ) -> AppendReceipt:
        """Append all batches of a body, or none, and return once ``acks`` is reached.

        New producers are counted by ``client``, the client's address; ``led`` is the current result of the
        method ``led``. Raises with nothing written: ``InvalidRequest`` and its kinds, ``TopicNotFound``,
        ``NotLeader``, ``NoLeader``, ``NotEnoughReplicas``, ``OutOfOrderSequence``, ``ProducerFenced``,
        ``Overloaded``, ``QuotaExceeded``, ``StorageFull``, ``PartitionDecommissioned``, and in a transaction
        the errors of ``JoinTransaction``. Raises ``CommitUnknown`` when the records may be, or may become,
        committed.
        """
        deadline = deadline_in(timeout_ms)
        if transactional_id is not None:
            check_in_transaction(acks)
        self._check_of_users("write to another")
        group = led or self._serving.check_leads()
        placed: Placed | None = None
        while placed is None:
            rules = self._rules
            try:
                placed = await self._judged(group, body, acks, transactional_id, client, deadline)
            except CorruptBatch:
                raise  # no repetition can make it valid
            except REFUSALS as refusal:
                known = await self._stored_before(body, refusal, deadline)
                if isinstance(known, Placed):
                    placed = known
                elif not isinstance(refusal, InvalidRequest) or not await self._has_other_rules(rules):
                    if known is None:
                        raise
                    what = "the first batches are stored, but the others are refused"
                    raise CommitUnknown(f"{what}: {refusal}") from refusal
        durability = await acknowledged(group, placed, acks, self.in_sync, deadline)
        if not placed.in_one_run:
            raise CommitUnknown(
                "all records are stored, but not at consecutive offsets; read the partition to find them",
                committed=durability.committed or None,
            )
        return AppendReceipt(
            base_offset=placed.first,
            record_count=placed.last - placed.first + 1,
            leader_epoch=placed.leader_epoch,
            timestamp_ms=placed.timestamp_ms,
            was_duplicate=placed.was_duplicate,
            durability=durability,
        )

    async def _judged(
        self,
        group: RaftGroup[None],
        body: Body,
        acks: Acks,
        transactional_id: str | None,
        client: str,
        deadline: float,
    ) -> Placed:
        """Check a body by the topic's current rules and append it."""
        self._check_health(group)
        if acks.kind is AcksKind.COUNT:
            check_count(acks, len(self.replicas))
        batches = self._rules.validated(body, in_transaction=transactional_id is not None)
        if self._rules.checks_fast(batches) and not self._checking.locked():
            self._rules.check_all(batches)
        else:
            async with self._checking:  # requests keep their order, however long their checks take
                await self._rules.check_records(batches)
        if transactional_id is not None or max(map(_PRODUCER_ID, batches)) >= 0:
            await self._serving.ready(deadline)
            await self._admit(batches, client, deadline)
            await self._join(batches, transactional_id, deadline)
        try:
            return self._place(group, batches)
        except (OutOfOrderSequence, PartitionDecommissioned):
            # A deposed leader lacks batches that the next leader has appended, so it may see a false gap; and
            # the next leader may have ended the seal.
            await self._sealing.settle(deadline)
            await self._serving.confirm()
            return self._place(group, batches)

    async def _has_other_rules(self, rules: TopicRules) -> bool:
        """Whether the topic's rules differ from ``rules``; fetches the newest configuration if needed."""
        if self._hear is not None and rules == self._rules:
            await self._hear()
        return rules != self._rules

    async def _stored_before(
        self, body: Body, refusal: RaftlogError, deadline: float
    ) -> Placed | Begun | None:
        """Find batches of a refused body that were stored earlier, under other rules: all, or the first ones.

        A refusal that is not retryable needs proof that no other broker leads, which might have stored them.
        """
        begun: Begun | None = None
        headers = [batch.header for batch in batches_of(body)]
        if not headers or min(header.producer_id for header in headers) < 0:
            return None
        await self._serving.ready(deadline)
        for is_proved in (False, True):
            if is_proved and not refusal.retryable:
                await self._serving.confirm()
            with suppress(OutOfOrderSequence, ProducerFenced, InvalidRequest):
                known = self._in_flight.check(headers)
                if isinstance(known, Known):
                    return self._placed_before(known)
                begun = known
        return begun

    async def mark(self, marker: Marker, *, timeout_ms: int) -> None:
        """End a transaction here; return once its marker, of this or an earlier call, is committed.

        Once the marker is appended, batches of the transaction are refused. Sets ``marker.log_start``. Raises
        with nothing written: ``TopicNotFound``, ``NotLeader``, ``NoLeader``, ``Overloaded``, ``StorageFull``.
        Raises ``CommitUnknown``. A call may be repeated.
        """
        deadline = deadline_in(timeout_ms)
        self._serving.check_leads()
        await self._serving.ready(deadline)
        transaction = TransactionName(marker.producer_id, marker.producer_epoch)
        known = self._in_flight.marked(*transaction)
        if known is None:
            stamped = marker._replace(log_start=int(self.group.log.first_index))
            batch = marker_batch(stamped, timestamp_ms=self._clock.wall_ms())
            proposal = self.group.propose([batch], frees_room=True)  # retention stops at open transactions
            self._in_flight.add_marker(*transaction, proposal.last, proposal)
            self._participant.ended(transaction)
        elif known.handle is not None:
            proposal = known.handle
        else:
            return
        try:
            async with asyncio.timeout_at(deadline):
                await asyncio.shield(proposal.outcome)
        except TimeoutError:
            raise CommitUnknown(f"the marker in {self.target} is not committed yet; retry") from None

    async def delete_before(self, offset: Offset, *, timeout_ms: int) -> Offset:
        """Delete all records below an offset, as ``Deletion.delete_before`` describes."""
        self._check_of_users("its records cannot be deleted")
        now_ms = self._clock.wall_ms()
        return await self._deletion.delete_before(offset, self.config, now_ms=now_ms, timeout_ms=timeout_ms)

    async def set_archived(self, archived: Archived, *, timeout_ms: int) -> Offset:
        """Set the offset up to which the partition is archived, as ``Archiving.set_archived`` describes."""
        self._check_of_users("it has no archive")
        now_ms = self._clock.wall_ms()
        return await self._archiving.set_archived(archived, now_ms=now_ms, timeout_ms=timeout_ms)

    async def fetch(self, request: FetchRequest, ask_read_index: AskReadIndex | None = None) -> FetchResult:
        """Read whole committed batches from a position on, as ``Reads.fetch`` describes.

        With ``max_staleness_ms`` the call may ask the leader for a read index (``BoundedReads.fetch``).
        """
        if not request.max_staleness_ms:
            return await self._reads.fetch(request)
        return await self._bounded_reads.fetch(request, ask_read_index or self._read_index_here)

    async def read_index(self) -> Index:
        """An index that covers all entries committed before the call; proves that this replica leads.

        Raises ``NotLeader``, ``NoLeader``, ``TopicNotFound``.
        """
        self._serving.check_leads()
        return await self._serving.confirm()

    async def _read_index_here(self, leader: NodeId) -> Index:
        return await self.read_index()

    @property
    def must_settle_seal(self) -> bool:
        """Whether this replica leads, and its log lacks the seal that the metadata requires."""
        return self._serving.is_attached and self.group.is_leader and self._sealing.is_due

    async def settle_seal(self, timeout_ms: int) -> None:
        """Wait until the log has the seal that the metadata requires. Raises as ``Sealing.settle``."""
        self._serving.check_leads()
        await self._sealing.settle(deadline_in(timeout_ms))

    async def spent_at(self) -> tuple[Offset, Offset] | None:
        """The high watermark and the end of the records, if the partition is sealed and has no record left.

        Otherwise None. Linearizable. Raises ``NotLeader``, ``NoLeader``, ``TopicNotFound``.
        """
        await self.confirm()
        machine = self.machine
        start, newest = self.log_start_offset, machine.log_start.newest_record
        is_held = machine.transactions.oldest is not None or newest >= start
        if is_held or not machine.sealed.newest.is_sealed:
            return None
        end, records_end = self.high_watermark, start if newest < 0 else Offset(newest + 1)
        while start < end:  # a few control entries; a state of an earlier version has no newest record
            found = await self.fetch(FetchRequest(position=start, committed_only=False))
            if any(not batch.header.is_control for batch in split_batches(found.data)):
                return None
            start = found.next_offset
        return end, records_end

    async def offset_at(
        self, position: Position, *, committed_only: bool = True
    ) -> tuple[Offset, int | None]:
        """The offset of a position and its record's timestamp, as ``Reads.offset_at`` describes."""
        return await self._reads.offset_at(position, committed_only=committed_only)

    @property
    def leader_epoch(self) -> int:
        """The term of this leader, or -1 on a follower (``DerivedLog.leader_epoch``)."""
        return -1 if self._serving.leader_epoch is None else self._serving.leader_epoch

    @property
    def has_room(self) -> bool:
        """Whether the disk has room outside its reserve (``DerivedLog.has_room``)."""
        return self.group.has_room

    def propose(self, batches: Sequence[Batch], *, frees_room: bool) -> asyncio.Future[None]:
        """Append batches to the log, as ``DerivedLog.propose`` describes."""
        group = self._serving.check_leads()
        self._check_health(group)
        append_time_ms = self._clock.wall_ms() if self._rules.stamps_append_time else None
        try:
            return group.propose(batches, append_time_ms=append_time_ms, frees_room=frees_room).outcome
        except StorageFull:
            if not all(record.value is None for batch in batches for record in read_records(batch)):
                raise
        # Tombstones delete a group or a delayed message: compaction frees more room than they take.
        return group.propose(batches, append_time_ms=append_time_ms, frees_room=True).outcome

    async def confirm(self) -> None:
        """Confirm that no other broker leads, as ``DerivedLog.confirm`` describes."""
        self._serving.check_leads()
        await self._serving.confirm()

    def status(self) -> PartitionStatus:
        """The partition's status as this replica sees it. Only the leader's status has ``in_sync``."""
        group, newest = self.group, self.machine.log_start.newest_record
        learners = group.membership.learners
        rejoining = group.status().rejoining
        return PartitionStatus(
            partition=self.target.partition,
            leader=group.leader,
            term=group.term,
            replicas=self._in_order(group.membership.all_voters) or self.replicas,
            in_sync=tuple(sorted(self.in_sync())),
            commit_index=group.commit_index,
            log_start_offset=self.log_start_offset,
            high_watermark=self.high_watermark,
            log_end_offset=Offset(group.last_index + 1),
            size_bytes=group.log.size_bytes,
            learners=tuple(sorted(learners)),
            caught_up_percent=self._caught_up_percent() if learners else None,
            is_sealed=self.machine.sealed.newest.is_sealed,
            last_stable_offset=self.last_stable_offset,
            readers_held_ms=self._held_back.ms,
            archived_up_to=self.machine.archived.offset,
            records_end=NO_RECORD if newest < 0 else Offset(newest + 1),
            rejoining=(group.node_id,) if group.is_rejoining else tuple(sorted(rejoining.keys() - learners)),
            awaited=tuple(sorted(frozenset[NodeId]().union(*rejoining.values()))),
        )

    def in_sync(self) -> frozenset[NodeId]:
        """The replicas in sync, including the leader; empty unless this replica leads."""
        return self.group.in_sync(self._rules.lag_records_max, self._rules.lag_ms_max)

    @property
    def lacks_replicas(self) -> bool:
        """Whether this replica leads and some replica is not in sync."""
        serving = self._serving
        return serving.is_attached and serving.group.is_leader and len(self.in_sync()) < len(self.replicas)

    async def _admit(self, batches: Sequence[Batch], client: str, deadline: float) -> None:
        unknown = self._in_flight.unknown(map(_HEADER, batches))
        if unknown and self._admission is not None:
            left_s = deadline - asyncio.get_running_loop().time()
            await self._admission.admit(unknown, left_s * 1000, client)
            await self._serving.ready(deadline)  # another term may have begun

    async def _join(self, batches: Sequence[Batch], transactional_id: str | None, deadline: float) -> None:
        """Let the transaction of these batches join this partition, unless it has joined before."""
        headers = [*map(_HEADER, batches)]
        transaction = self._participant.transaction_of(headers, transactional_id)
        if transaction is None:
            return
        assert transactional_id is not None
        if self._join_transaction is None:
            raise InvalidRequest("this broker has no transactions; omit the id", field="transactional_id")
        left_ms = ms_until(deadline)
        size_bytes = sum(len(batch.data) for batch in batches)
        await self._participant.join(
            self._join_transaction, transactional_id, transaction, self.target, left_ms, size_bytes
        )
        await self._serving.ready(deadline)  # another term may have begun

    def _place(self, group: RaftGroup[None], batches: Sequence[Batch]) -> Placed:
        """Check the sequences and append the batches, without a pause in which another request could run."""
        headers = [*map(_HEADER, batches)]
        known = self._in_flight.check(headers)
        if isinstance(known, Known):
            return self._placed_before(known)
        begun = 0 if known is None else known.count
        self._sealing.check_open()
        append_time_ms = self._clock.wall_ms() if self._rules.stamps_append_time else None
        proposal = group.propose(batches[begun:], append_time_ms=append_time_ms)
        self._in_flight.add(headers[begun:], proposal.first, proposal.term, append_time_ms, proposal)
        return Placed(
            first=Offset(proposal.first),
            last=proposal.last,
            leader_epoch=proposal.term,
            timestamp_ms=append_time_ms,
            was_duplicate=False,
            proposal=proposal,
            in_one_run=not begun,
        )

    def _placed_before(self, known: Known[Proposal[None]]) -> Placed:
        return Placed(
            first=known.base_offset,
            last=Index(known.last_offset),
            leader_epoch=known.leader_epoch,
            timestamp_ms=known.timestamp_ms if self._rules.stamps_append_time else None,
            was_duplicate=True,
            proposal=known.handle,
            in_one_run=known.in_one_run,
        )

    def _tell_derived(self) -> None:
        """Let the derived state write during leader epochs in which this replica is a ready leader."""
        if self._derived is None:
            return
        serving = self._serving
        is_leading = serving.is_attached and not serving.is_deleted and serving.is_ready
        epoch = serving.leader_epoch if is_leading else None
        if epoch != self._derived_epoch:
            if self._derived_epoch is not None:
                self._derived.leads(None)
            self._derived_epoch = epoch
            if epoch is not None:
                self._derived.leads(self)

    def _count(self, membership: Membership) -> None:
        """Use the membership's voters as replicas. Without voters the replicas of the metadata stay."""
        voters = self._in_order(membership.voters)
        if voters and voters != self.replicas:
            self.replicas = voters
            self._rules = TopicRules.of(self.config, len(voters))

    def _in_order(self, voters: frozenset[NodeId]) -> tuple[NodeId, ...]:
        known = [node for node in self.replicas if node in voters]
        return (*known, *sorted(voters - set(known)))

    def _caught_up_percent(self) -> int | None:
        """The progress of the slowest learner in percent; None without learners known here."""
        group = self.group
        matches = group.status().learner_match_index.values()
        if not matches:
            return None
        start = group.log.first_index
        whole = group.last_index - start + 1
        return 100 if whole <= 0 else max(0, min(100, 100 * (min(matches) - start + 1) // whole))

    def _check_of_users(self, else_: str) -> None:
        if self._derived is not None:
            raise InvalidRequest(f"topic {self.target.topic} is internal; {else_}", field="topic")

    def _check_health(self, group: RaftGroup[None]) -> None:
        healthy = len(group.keeping_up(self._rules.lag_records_max, self._rules.lag_ms_max))
        wanted = self._rules.in_sync_min
        if healthy < wanted:
            raise NotEnoughReplicas(
                f"{healthy} of {len(self.replicas)} replicas of {self.target} are in sync, but "
                f"min.insync.replicas is {wanted}; retry when more replicas are in sync",
                in_sync=healthy,
                wanted=wanted,
                retry_after_ms=RETRY_AFTER_MS,
            )
