"""Runs one consumer: hands out records, commits acknowledged ones, and takes part in the group.

Decides: when which records are handed out, which offsets are committed, and how long a rebalance waits. All
methods run on the client's loop, except ``acknowledge`` and ``is_handling``, which the user's thread calls.

``at_least_once`` commits acknowledged records every ``commit_interval``, before each rebalance and when the
consumer closes. ``at_most_once`` commits each record just before it hands the record out (``claim``). With
``tags``, both of these deliveries also commit offsets past skipped records. ``exactly_once`` commits nothing
here: each batch has a transaction, which commits the offset after the batch. A batch whose transaction is not
committed is read again.

A rebalance waits for the record that is being handled, for up to half of ``rebalance_timeout``; heartbeats
continue meanwhile. Records handed out but not begun are dropped, since the next owner gets them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Final, TypeVar

from raftlog.client.consumer.fetching import Fetching, OpenPartition
from raftlog.client.consumer.membership import COOPERATIVE, Membership
from raftlog.client.consumer.options import ConsumerOptions, transactional_id_of
from raftlog.client.consumer.subscription import Subscription, TopicsPort
from raftlog.client.logs import client_logger
from raftlog.client.messages import Message
from raftlog.client.partition import Position
from raftlog.client.producer import AsyncProducer
from raftlog.client.retries import pause_s
from raftlog.client.session import Session
from raftlog.errors import (
    GroupNotFound,
    MemberNotFound,
    NotSent,
    OffsetOutOfRange,
    PartitionNotFound,
    RaftlogError,
    RebalanceInProgress,
    StaleGeneration,
    TopicNotFound,
)
from raftlog.types import TopicPartition

FENCED: Final = (GroupNotFound, MemberNotFound, StaleGeneration, RebalanceInProgress)
FIRSTS_AT_A_TIME: Final = 8
CLOSE_S: Final = 4.0  # for the last commit and for leaving, also if no broker answers
LOOK_S: Final = 0.02  # interval of looks at the handler for which a rebalance waits
CLAIM_S: Final = 2.0  # for the commit before a record is handed out; then it is retried
SETTLE_S: Final = 0.5  # minimum wait for the outcome of a transaction
NO_OFFSET: Final = "group %s has no committed offset of %s: it starts at offset %d, since reset is '%s'"
Outcome = TypeVar("Outcome")
Place = tuple[int, int]
_log = client_logger()


class ConsumerCore:
    """A group member. ``epoch`` rises when partitions are lost: records of an earlier epoch are dropped."""

    def __init__(
        self,
        session: Session,
        options: ConsumerOptions,
        open_partition: OpenPartition,
        topics: TopicsPort,
        prepare_producer: Callable[[str], Callable[[], AsyncProducer]],
    ) -> None:
        self.options = options
        self.epoch = 0
        self.version = 0  # rises with the epoch, and with each seek and pause
        self.is_handling = False
        self._session = session
        self._open_partition = open_partition
        self._member = Membership(session, options)
        self._subscription = Subscription(options, topics, session.clock)
        self._fetching = Fetching(
            open_partition,
            options.prefetch_bytes,
            linger_s=options.linger_s,
            awaits_topics=options.pattern is not None,
            awaits_rebalance=not options.assigned,
            selection=options.selection,
            fails=options.reset == "fail",
        )
        self._acknowledged: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._began: dict[TopicPartition, int] = {}  # where reading began
        self._handed_out: dict[TopicPartition, int] = {}  # one past the newest record handed out since then
        self._stopped_at: dict[TopicPartition, int] = {}  # the positions when reading stopped
        self._rewound: set[TopicPartition] = set()
        self._seeks: dict[TopicPartition, int] = {}  # number of seeks
        self._producer: AsyncProducer | None = None
        self._make_producer: Callable[[], AsyncProducer] | None = None
        if options.is_exactly_once:
            member = options.instance_id or self._member.member_id
            self._make_producer = prepare_producer(transactional_id_of(options.group, member))
        self._uncommitted: set[TopicPartition] = set()  # their newest transaction is not committed
        self._assignment: frozenset[TopicPartition] = frozenset()
        self._assigned_in = -1  # the generation of the assignment and of the acknowledgements
        self._is_assigned = asyncio.Event()
        self._committing = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []
        self._closing: asyncio.Task[None] | None = None
        self._failure: Exception | None = None

    @property
    def member_id(self) -> str:
        """The id of this member."""
        return self._member.member_id

    @property
    def generation(self) -> int:
        """The newest generation that this member joined; -1 before the first."""
        return self._member.generation

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions of this member."""
        return self._assignment

    @property
    def is_assigned(self) -> bool:
        """Whether this member knows its partitions; False during a rebalance."""
        return self._is_assigned.is_set()

    @property
    def producer(self) -> AsyncProducer:
        """The producer of the consumer's transactions. Raises ``RuntimeError`` unless ``exactly_once``."""
        if self._producer is None:
            raise RuntimeError("batches have transactions only in a consumer with delivery='exactly_once'")
        return self._producer

    async def begin(self) -> None:
        """Join in the background, or read the assigned partitions. Only the first call has an effect."""
        if self._tasks or self._closing is not None:
            return
        if not self._session.is_open:
            await self._session.open()
        if self._make_producer is not None:
            self._producer = self._make_producer()
        work = self._hold() if self.options.assigned else self._belong()
        both = work, self._commit_regularly()
        self._tasks = [asyncio.create_task(self._or_fail(each)) for each in both]

    async def _or_fail(self, work: Awaitable[None]) -> None:
        """Run ``work``. An unexpected error, such as an exception of an assignor, ends this consumer."""
        try:
            await work
        except Exception as error:
            self._fail(error)

    # Records.

    async def take(self, count_max: int, wait_s: float) -> tuple[int, list[Message]]:
        """The epoch, and records of one partition; an empty list if no record comes in time.

        Raises the error that ended this consumer.
        """
        deadline = asyncio.get_running_loop().time() + wait_s
        await self._until_assigned(deadline)
        left_s = deadline - asyncio.get_running_loop().time()
        messages: list[Message] = []
        if await self._rewind(left_s):  # a member without partitions waits, too
            messages = await self._fetching.take(count_max, max(0.0, left_s))
            if messages:
                self._handed_out[_target(messages[-1])] = messages[-1].offset + 1
        if self._failure is not None:
            raise self._failure
        return self.epoch, messages  # the present one: a rebalance may have ended during the wait

    def place(self, target: TopicPartition) -> Place:
        """The ``Place`` of this partition. It changes with a seek, and when the records are dropped."""
        return self.epoch, self._seeks.get(target, 0)

    def acknowledge(self, message: Message) -> None:
        """Mark a message and all earlier messages of the partition as processed. For any thread.

        An acknowledgement never lowers the acknowledged offset; only a seek does. The acknowledgement of a
        record that was handed out in an earlier assignment is ignored: by then, a new topic may have the
        partition's name. For this reason the order of the statements here and in ``_assign`` matters.
        """
        acknowledged = self._acknowledged
        target, offset = TopicPartition(message.topic, message.partition), message.offset + 1
        before = acknowledged.get(target, self._committed.get(target, 0))
        if before < offset <= self._handed_out.get(target, 0):
            acknowledged[target] = offset

    async def commit(self) -> None:
        """Commit acknowledged offsets. Raises the error that fences this member, once for lost partitions."""
        if not self.options.group:
            return
        async with self._committing:
            offsets = {**self._acknowledged, **self._over_skipped()}
            await self._commit(offsets)
            lost = [
                target
                for target, offset in offsets.items()
                if target not in self._assignment and self._committed.get(target) != offset
            ]
            for target in lost:
                self._acknowledged.pop(target, None)
        if lost:
            raise StaleGeneration(
                f"{', '.join(map(str, lost))} belong to other members now, which get their records again",
                current=self.generation,
            )

    def _over_skipped(self) -> dict[TopicPartition, int]:
        """The next offset to hand out, of partitions whose earlier records are acknowledged or skipped."""
        found: dict[TopicPartition, int] = {}
        if self.options.selection is None or self.options.is_exactly_once:
            return found  # nearly always
        for target, position in (self._fetching.positions or self._stopped_at).items():
            acknowledged = self._acknowledged.get(target, -1)
            reached = max(acknowledged, self._committed.get(target, -1), self._began.get(target, position))
            if acknowledged >= self._handed_out.get(target, -1) and position > reached:
                found[target] = position
        return found

    async def claim(self, message: Message, epoch: int) -> bool:
        """Commit this record and earlier ones of its partition before they are handed out (``at_most_once``).

        ``epoch`` is the epoch in which the records were taken. False if the records must not be handed out
        now: the caller keeps them. If the epoch ends, the caller drops them; otherwise it claims them again.
        """
        target, assigned_in = _target(message), self._assigned_in
        place = self.place(target)
        if epoch != self.epoch:
            return False
        try:
            async with self._committing:
                await self._commit({target: message.offset + 1}, limit_s=CLAIM_S)
        except RaftlogError as error:
            if not (isinstance(error, FENCED) or self._may_pass(error)):
                raise
            _log.info("member %s retries the commit before a record of %s: %s", self.member_id, target, error)
            await asyncio.sleep(pause_s(error, 1, self._session.rng))
            return False
        # A rebalance that began meanwhile waits for the record; another assignment, or a seek, drops it.
        is_same = (assigned_in, place[1]) == (self._assigned_in, self.place(target)[1])
        if not is_same or self._committed.get(target, 0) <= message.offset:
            return False
        self.acknowledge(message)
        return True

    async def _commit(self, offsets: dict[TopicPartition, int], limit_s: float | None = None) -> None:
        wanted = {
            target: offset
            for target, offset in offsets.items()
            if target in self._assignment and self._committed.get(target) != offset
        }
        if wanted:
            rewinds = bool(self._rewound)
            # A seek from now on belongs to the next commit.
            places = {target: self.place(target) for target in wanted}
            await self._member.commit(wanted, generation=self._assigned_in, rewinds=rewinds, limit_s=limit_s)
            self._committed.update(wanted)
            self._rewound -= {target for target in wanted if self.place(target) == places[target]}

    # Transactions.

    def note_begun(self, target: TopicPartition, epoch: int) -> None:
        """Note that a transaction of records of this partition has begun."""
        if epoch == self.epoch:
            self._uncommitted.add(target)

    def note_committed(self, target: TopicPartition, epoch: int) -> None:
        """Note that the transaction of a partition's records is committed, and the offset with it."""
        if epoch == self.epoch:
            self._uncommitted.discard(target)

    async def _rewind(self, wait_s: float) -> bool:
        """Read from the committed offset after an uncommitted transaction. False: the caller must retry."""
        if not self._uncommitted:
            return True
        incarnation = self.producer.incarnation
        if incarnation.is_open:
            raise RuntimeError("end the transaction of the batch before you take the next batch")
        epoch = self.epoch
        try:
            await incarnation.settle(max(wait_s, SETTLE_S))
            committed = await self._member.committed()
            targets = self._uncommitted & self._assignment
            positions = {target: at for target, at in committed.items() if target in targets}
            positions |= await self._firsts(targets - positions.keys())
        except RaftlogError as error:
            _log.info("member %s waits for committed offsets: %s", self.member_id, error)
            await asyncio.sleep(pause_s(error, 3, self._session.rng))
            return False
        if epoch == self.epoch:
            for target in positions.keys() & self._uncommitted & self._fetching.positions.keys():
                await self._fetching.seek(target, positions[target])
            self._uncommitted.clear()
        return epoch == self.epoch

    # Positions.

    async def seek(self, target: TopicPartition, position: Position) -> None:
        """Continue at another position of a partition. Raises ``KeyError`` if it is not assigned."""
        if target not in self._assignment:
            raise KeyError(f"{target} is not assigned to this consumer")
        offset = position if type(position) is int and position >= 0 else None
        if offset is None:
            offset = await self._open_partition(target).offset_at(position)
        if self.options.is_exactly_once:  # now: a later commit would undo transactions
            await self._member.commit({target: offset}, generation=self._assigned_in, rewinds=True)
            self._uncommitted.discard(target)
        else:
            self._rewound.add(target)
            self._acknowledged[target] = offset
        self._began[target] = offset
        self._handed_out.pop(target, None)
        await self._continue_at(target, offset)

    async def _continue_at(self, target: TopicPartition, offset: int) -> None:
        """Read on at ``offset``. Records of this partition that were handed out but not begun are dropped."""
        self._seeks[target] = self._seeks.get(target, 0) + 1
        self.version += 1
        await self._fetching.seek(target, offset)

    async def read_again(self, target: TopicPartition, place: Place, offset: int) -> None:
        """Take back records from ``offset`` on, to hand them out later. If they were dropped, do nothing."""
        if place == self.place(target):
            self._handed_out[target] = offset
            await self._continue_at(target, offset)

    def pause(self, targets: Collection[TopicPartition], *, is_paused: bool) -> None:
        """Pause or resume handing out records of partitions. Raises ``KeyError`` if one is not assigned."""
        for target in targets:
            if target not in self._assignment:
                raise KeyError(f"{target} is not assigned to this consumer")
            self._fetching.pause(target, is_paused)
        self.version += 1

    def is_paused(self, target: TopicPartition) -> bool:
        """Whether this partition is paused. May be called from any thread."""
        return self._fetching.is_paused(target)

    def positions(self) -> dict[TopicPartition, int]:
        """The next offset to hand out, by partition."""
        return self._fetching.positions

    def lag(self) -> dict[TopicPartition, int]:
        """The lag in records, by partition, at the last response; without partitions that had no response."""
        return self._fetching.lag

    @property
    def described(self) -> str:
        """A line of text with the group, the partitions, the addresses of the client, and the state."""
        state = "closed" if self.is_closed else "open"
        urls = ",".join(self._session.given_urls)
        return f"group={self.options.group!r} partitions={len(self.assignment)} {urls} {state}"

    @property
    def is_closed(self) -> bool:
        """Whether the consumer has left its group and ended."""
        return self._closing is not None and self._closing.done()

    async def close(self) -> None:
        """Commit, leave the group, and end, within ``CLOSE_S``. The record being handled is not acknowledged.

        A consumer that has not begun sends no request. Cancelling the caller does not stop the closing; a
        second call waits until the first closing is complete.
        """
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stop_reading()
        if self._tasks:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await self._commit_and_leave()
        if self._producer is not None:
            await self._producer.close(0)
        self._assignment = frozenset()
        self._drop_all()
        self._fail(NotSent("the consumer is closed"))

    async def _commit_and_leave(self) -> None:
        with contextlib.suppress(RaftlogError):
            await self.commit()
        if not self.options.assigned:
            with contextlib.suppress(RaftlogError):
                await self._member.leave()  # also while a join is in progress

    # Membership.

    async def _belong(self) -> None:
        """Join the group again and again, for one generation after another."""
        attempts = 0
        while True:
            try:
                if self._producer is not None:
                    await self._producer.incarnation.open()
                if not await self._subscription.look():
                    await asyncio.sleep(self.options.topics_refresh_s)
                    continue
                owned = self._member.owned
                assignment = await self._member.join(self._subscription.topics)
                attempts = 0
                if self._member.strategy != COOPERATIVE or owned <= assignment:
                    await self._remain(assignment)
                await self._revoke()
            except MemberNotFound:
                self._member.generation = -1
                await self._lose()
            except FENCED:
                await self._lose()
            except RaftlogError as error:
                attempts += 1
                if not await self._may_try_again(error, attempts):
                    return

    async def _remain(self, assignment: frozenset[TopicPartition]) -> None:
        """Read these partitions and send heartbeats, until the member must join again."""
        assigning = asyncio.create_task(self._repeated(partial(self._assign, assignment)))
        beating = asyncio.create_task(self._beat())
        try:
            await asyncio.wait((assigning, beating), return_when=asyncio.FIRST_COMPLETED)
            if assigning.done():
                assigning.result()
            await beating
        finally:
            assigning.cancel()
            beating.cancel()
            await asyncio.gather(assigning, beating, return_exceptions=True)

    async def _beat(self) -> None:
        while not (await self._repeated(self._member.heartbeat) or await self._subscription.has_changed()):
            pass

    async def _repeated(self, act: Callable[[], Awaitable[Outcome]]) -> Outcome:
        """Call ``act``, again after each temporary error: to join again instead would start a rebalance."""
        attempts = 0
        while True:
            try:
                return await act()
            except RaftlogError as error:
                if isinstance(error, FENCED) or not self._may_pass(error):
                    raise
                attempts += 1
                _log.info("member %s retries in generation %d: %s", self.member_id, self.generation, error)
                await asyncio.sleep(pause_s(error, attempts, self._session.rng))

    async def _hold(self) -> None:
        """Read the partitions that the user chose, from the committed offsets of the group, if any."""
        attempts = 1
        while not self._assignment:
            try:
                await self._assign(self.options.assigned)
            except RaftlogError as error:
                if not await self._may_try_again(error, attempts):
                    return
                attempts += 1

    async def _may_try_again(self, error: RaftlogError, attempts: int) -> bool:
        """Pause before a retry. False if the error is permanent, which ends this consumer."""
        if not self._may_pass(error):
            self._fail(error)
            return False
        await asyncio.sleep(pause_s(error, attempts, self._session.rng))
        return True

    def _may_pass(self, error: RaftlogError) -> bool:
        is_deleted = self.options.pattern is not None and isinstance(error, TopicNotFound)
        is_deleted = is_deleted or (not self.options.assigned and isinstance(error, PartitionNotFound))
        may_pass = error.retryable or is_deleted or isinstance(error, NotSent)
        return may_pass and error is not self._subscription.missing

    async def _assign(self, assignment: frozenset[TopicPartition]) -> None:
        committed = await self._member.committed() if assignment and self.options.group else {}
        positions = {target: offset for target, offset in committed.items() if target in assignment}
        begins = await self._firsts(assignment - positions.keys())
        self._assignment, self._assigned_in = assignment, self._member.generation
        self._began, self._handed_out, self._stopped_at = {**positions, **begins}, {}, {}
        self._acknowledged, self._committed = {}, dict(positions)
        self._rewound.clear()
        self._uncommitted.clear()
        if begins and self.options.reset == "latest" and self.options.group:  # the end moves later
            async with self._committing:
                await self._commit(begins)
        await self._fetching.start(self._began)
        self._is_assigned.set()
        _log.info(
            "member %s of group %s has %d partitions in generation %d",
            self.member_id,
            self.options.group,
            len(assignment),
            self.generation,
        )

    async def _firsts(self, targets: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offsets to read of partitions without a committed offset. Few requests run at a time."""
        asking, ordered, reset = asyncio.Semaphore(FIRSTS_AT_A_TIME), list(targets), self.options.reset
        if reset == "fail" and ordered:
            raise OffsetOutOfRange(
                f"group {self.options.group} has no committed offset of {', '.join(map(str, ordered[:9]))}, "
                "and reset is 'fail'; commit offsets (`raftlog group reset`), or choose earliest or latest"
            )

        async def first(target: TopicPartition) -> int:
            async with asking:
                found = await self._open_partition(target).offset_at(reset)
            if self.options.group:  # records may be skipped, or read again
                level = logging.WARNING if found else logging.INFO
                _log.log(level, NO_OFFSET, self.options.group, target, found, reset)
            return found

        tasks = [asyncio.create_task(first(target)) for target in ordered]
        try:
            return dict(zip(ordered, await asyncio.gather(*tasks), strict=True))
        finally:
            for task in tasks:
                task.cancel()  # after an error all offsets are requested again

    async def _revoke(self) -> None:
        """Prepare a rebalance: stop handing out records, wait for the record being handled, and commit."""
        self._is_assigned.clear()
        await self._stop_reading()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.options.rebalance_timeout_ms / 2_000
        beat_s = self.options.session_timeout_ms / 4_000
        beats_at = loop.time() + beat_s
        self._drop_all()
        while self.is_handling and loop.time() < deadline:
            await asyncio.sleep(LOOK_S)
            if loop.time() >= beats_at:
                await self._member.heartbeat()
                beats_at = loop.time() + beat_s
        with contextlib.suppress(RaftlogError):
            await self.commit()

    def _drop_all(self) -> None:
        """Drop records that were handed out but not begun: the user's thread compares ``version``."""
        self.epoch += 1
        self.version += 1

    async def _stop_reading(self) -> None:
        """Stop fetching, and keep the positions, so that skipped offsets can still be committed."""
        self._stopped_at = self._fetching.positions
        await self._fetching.stop()

    async def _lose(self) -> None:
        """Stop reading because the member was fenced: the partitions belong to other members."""
        self._member.owned = frozenset()
        self._is_assigned.clear()
        self._drop_all()
        await self._fetching.stop()
        self._assignment = frozenset()

    def _fail(self, error: Exception) -> None:
        self._failure = self._failure or error
        self._is_assigned.set()
        self._fetching.fail(self._failure)  # a waiting ``take`` raises the error at once

    async def _until_assigned(self, deadline_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(deadline_s):
                await self._is_assigned.wait()
        if self._failure is not None:
            raise self._failure

    async def _commit_regularly(self) -> None:
        while True:
            await asyncio.sleep(self.options.commit_interval_s)
            try:
                await self.commit()
            except RaftlogError as error:
                if self.options.assigned and not error.retryable and error.is_definite:
                    self._fail(error)  # such as a group that has members
                    return
                if isinstance(error, FENCED):
                    continue  # the records are handed out again, perhaps by another member
                _log.warning("member %s could not commit and will retry: %s", self.member_id, error)


def _target(message: Message) -> TopicPartition:
    return TopicPartition(message.topic, message.partition)
