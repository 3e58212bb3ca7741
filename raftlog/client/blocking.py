"""The blocking client: runs the asynchronous client on a thread, and has methods with equal names.

Every method waits for its asynchronous counterpart, except ``Producer.send``: it appends to the buffer on the
caller's thread, and uses the event loop only if the buffer is full or the topic is new.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Self, TypeVar, Unpack

from raftlog.client.admin import AsyncBrokers, AsyncCluster, AsyncTopics
from raftlog.client.blocking_producer import Producer
from raftlog.client.blocking_queue import Queue
from raftlog.client.client import AsyncClient, rack_from, url_from
from raftlog.client.consumer.core import ConsumerCore
from raftlog.client.consumer.faces import Consumer
from raftlog.client.consumer.options import ConsumerSettings, TopicNames, consumer_options
from raftlog.client.dead_letters import AsyncDeadLetters
from raftlog.client.delayed import AsyncDelayed
from raftlog.client.groups import AsyncGroups
from raftlog.client.messages import Chunk, Decoder, Message
from raftlog.client.options import (
    URL_DEFAULT,
    ClientSettings,
    Duration,
    ProducerSettings,
    TimeoutSettings,
    producer_options,
)
from raftlog.client.partition import AsyncPartition, Position, TailSettings
from raftlog.client.partitions import AsyncPartitions
from raftlog.client.portal import Portal, SyncProxy, blocking
from raftlog.client.producer import HURRIED_CLOSE, AsyncProducer
from raftlog.client.schedules import AsyncSchedules
from raftlog.client.settings import settings_of
from raftlog.client.transactions import AsyncTransactions
from raftlog.client.worker.calls import Calls, ThreadCalls, check_function
from raftlog.client.worker.options import WorkerSettings, worker_options
from raftlog.client.worker.run import Registered, stopped_by_signals

Handler = TypeVar("Handler", bound=Callable[[Message], object])


class Topics(SyncProxy[AsyncTopics]):
    """The topics of the cluster. Changes of topics are not retried after an unknown outcome."""

    create = blocking(AsyncTopics.create)
    list = blocking(AsyncTopics.list)
    describe = blocking(AsyncTopics.describe)
    partitions = blocking(AsyncTopics.partitions)
    alter = blocking(AsyncTopics.alter)
    add_partitions = blocking(AsyncTopics.add_partitions)
    decommission_partitions = blocking(AsyncTopics.decommission_partitions)
    recommission_partitions = blocking(AsyncTopics.recommission_partitions)
    dependents = blocking(AsyncTopics.dependents)
    delete = blocking(AsyncTopics.delete)


class Brokers(SyncProxy[AsyncBrokers]):
    """The brokers of the cluster."""

    list = blocking(AsyncBrokers.list)
    describe = blocking(AsyncBrokers.describe)
    drain = blocking(AsyncBrokers.drain)
    decommission = blocking(AsyncBrokers.decommission)
    recommission = blocking(AsyncBrokers.recommission)
    forget = blocking(AsyncBrokers.forget)
    admit = blocking(AsyncBrokers.admit)


class Cluster(SyncProxy[AsyncCluster]):
    """The cluster as a whole: its state, plans of balancing, tokens to join."""

    describe = blocking(AsyncCluster.describe)
    propose_plan = blocking(AsyncCluster.propose_plan)
    start_plan = blocking(AsyncCluster.start_plan)
    plan = blocking(AsyncCluster.plan)
    cancel_plan = blocking(AsyncCluster.cancel_plan)
    join_token = blocking(AsyncCluster.join_token)
    controller = blocking(AsyncCluster.controller)


class Partitions(SyncProxy[AsyncPartitions]):
    """The partitions of the cluster: leaders, replicas, the beginning of logs."""

    describe = blocking(AsyncPartitions.describe)
    transfer_leadership = blocking(AsyncPartitions.transfer_leadership)
    add_replica = blocking(AsyncPartitions.add_replica)
    remove_replica = blocking(AsyncPartitions.remove_replica)
    set_replicas = blocking(AsyncPartitions.set_replicas)
    delete_before = blocking(AsyncPartitions.delete_before)
    set_archived = blocking(AsyncPartitions.set_archived)
    unsafe_recover = blocking(AsyncPartitions.unsafe_recover)


class Groups(SyncProxy[AsyncGroups]):
    """The consumer groups of the cluster."""

    list = blocking(AsyncGroups.list)
    describe = blocking(AsyncGroups.describe)
    offsets = blocking(AsyncGroups.offsets)
    pending_offsets = blocking(AsyncGroups.pending_offsets)
    rebalances = blocking(AsyncGroups.rebalances)
    commit = blocking(AsyncGroups.commit)
    reset = blocking(AsyncGroups.reset)
    delete_offsets = blocking(AsyncGroups.delete_offsets)
    delete = blocking(AsyncGroups.delete)


class DeadLetters(SyncProxy[AsyncDeadLetters]):
    """The dead letters of the consumer groups."""

    list = blocking(AsyncDeadLetters.list)
    redrive = blocking(AsyncDeadLetters.redrive)
    discard = blocking(AsyncDeadLetters.discard)


class Transactions(SyncProxy[AsyncTransactions]):
    """The transactions of the cluster."""

    list = blocking(AsyncTransactions.list)
    describe = blocking(AsyncTransactions.describe)
    abort = blocking(AsyncTransactions.abort)
    begin_run = blocking(AsyncTransactions.begin_run)
    commit_batch = blocking(AsyncTransactions.commit_batch)
    abort_batch = blocking(AsyncTransactions.abort_batch)


class Delayed(SyncProxy[AsyncDelayed]):
    """The delayed messages of the cluster."""

    send = blocking(AsyncDelayed.send)
    list = blocking(AsyncDelayed.list)
    describe = blocking(AsyncDelayed.describe)
    reschedule = blocking(AsyncDelayed.reschedule)
    cancel = blocking(AsyncDelayed.cancel)


class Schedules(SyncProxy[AsyncSchedules]):
    """The schedules of the cluster."""

    create = blocking(AsyncSchedules.create)
    list = blocking(AsyncSchedules.list)
    describe = blocking(AsyncSchedules.describe)
    pause = blocking(AsyncSchedules.pause)
    resume = blocking(AsyncSchedules.resume)
    delete = blocking(AsyncSchedules.delete)


class Partition(SyncProxy[AsyncPartition]):
    """One partition of one topic, read from its leader, or by a client with a rack from a replica nearby."""

    read = blocking(AsyncPartition.read)
    offset_at = blocking(AsyncPartition.offset_at)

    @settings_of(TailSettings, AsyncPartition.chunks)
    def tail(self, position: Position = "latest", **settings: Unpack[TailSettings]) -> Iterator[Message]:
        """Every message from a position on, without end; by default new messages only."""
        for chunk in self.chunks(position, **settings):
            yield from chunk.messages

    @settings_of(TailSettings, AsyncPartition.chunks)
    def chunks(self, position: Position = "latest", **settings: Unpack[TailSettings]) -> Iterator[Chunk]:
        """The messages of ``tail``, in chunks. Each chunk has at least one message or skipped offset."""
        yield from self._portal.iterated(self._core.chunks(position, **settings))


class Client(SyncProxy[AsyncClient]):
    """A client of one cluster, for any number of threads. Use it as a ``with`` block, or ``close`` it.

    ``url`` is ``raftlog://host:port,host:port``, an ``http://`` URL or a list; one broker that answers
    is enough. ``request_timeout`` bounds one request, ``retry_timeout`` a call with all its retries.

    With a ``rack`` the client's readers (``partition``, ``consumer``, ``worker``) read from the replica in
    that rack, as long as the replica knows all records that were committed ``max_staleness`` ago (10 s by
    default). Otherwise they read from the leader.
    """

    @settings_of(ClientSettings, AsyncClient.__init__)
    def __init__(self, url: str | Sequence[str] = URL_DEFAULT, **settings: Unpack[ClientSettings]) -> None:
        core = AsyncClient(url, **settings)
        super().__init__(core, Portal())
        self._portal.call(core.open)
        # buffered records are not lost if the client is never closed
        atexit.register(self.close, HURRIED_CLOSE)
        self._topics = Topics(core.topics, self._portal)
        self._cluster = Cluster(core.cluster, self._portal)
        self._brokers = Brokers(core.brokers, self._portal)
        self._partitions = Partitions(core.partitions, self._portal)
        self._groups = Groups(core.groups, self._portal)
        self._dead_letters = DeadLetters(core.dead_letters, self._portal)
        self._transactions = Transactions(core.transactions, self._portal)
        self._delayed = Delayed(core.delayed, self._portal)
        self._schedules = Schedules(core.schedules, self._portal)
        self._registered: list[Registered] = []

    def __repr__(self) -> str:
        return f"<raftlog.Client {self._core._addresses} {'open' if self._portal.is_open else 'closed'}>"

    @property
    def topics(self) -> Topics:
        """The topics: create, describe, change and delete them."""
        return self._topics

    @property
    def cluster(self) -> Cluster:
        """The cluster as a whole: its state, plans of balancing, tokens to join."""
        return self._cluster

    @property
    def brokers(self) -> Brokers:
        """The brokers of the cluster."""
        return self._brokers

    @property
    def partitions(self) -> Partitions:
        """The partitions of the cluster."""
        return self._partitions

    @property
    def groups(self) -> Groups:
        """The consumer groups: members, offsets and lag."""
        return self._groups

    @property
    def dead_letters(self) -> DeadLetters:
        """The dead letters: records that consumer groups could not process."""
        return self._dead_letters

    @property
    def transactions(self) -> Transactions:
        """The transactions, and the runs of sinks."""
        return self._transactions

    @property
    def delayed(self) -> Delayed:
        """The delayed messages, which are stored in their topics at a later time."""
        return self._delayed

    @property
    def schedules(self) -> Schedules:
        """The schedules, which send records at the times of cron expressions."""
        return self._schedules

    @property
    def rack(self) -> str | None:
        """The rack of the client's readers."""
        return self._core.rack

    @classmethod
    @settings_of(ClientSettings, AsyncClient.__init__)
    def from_url(cls, url: str, **settings: Unpack[ClientSettings]) -> Self:
        """Create a client for a URL."""
        return cls(url, **settings)

    @classmethod
    @settings_of(TimeoutSettings, AsyncClient.__init__)
    def from_env(cls, environ: Mapping[str, str] | None = None, **settings: Unpack[TimeoutSettings]) -> Self:
        """Create a client from the environment variables ``RAFTLOG_URL`` and ``RAFTLOG_RACK``."""
        return cls(url_from(environ), rack=rack_from(environ), **settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close(HURRIED_CLOSE if isinstance(error, KeyboardInterrupt) else "30s")

    send = blocking(AsyncClient.send)

    def close(self, timeout: Duration = "30s") -> None:
        """Flush all producers, for at most ``timeout``, close all connections and end the thread."""
        if not self._portal.is_open:
            return
        atexit.unregister(self.close)
        try:
            self._portal.end(lambda: self._core.close(timeout))
        finally:
            self._portal.close()

    @settings_of(ProducerSettings, producer_options)
    def producer(self, topic: str | None = None, **settings: Unpack[ProducerSettings]) -> Producer:
        """A producer for one topic, or for any topic if each send names it. Options are checked here.

        ``delivery`` sets options that belong together, and refuses options that contradict it:
        ``at_most_once`` sends a record once, without an acknowledgement, ``at_least_once`` repeats it until a
        majority has stored it, ``exactly_once`` also sends in transactions. Without ``delivery``, ``acks`` is
        ``quorum``, and repetitions are stored once. With a ``transactional_id`` the producer sends in
        transactions, each of which is aborted after ``transaction_timeout``. Only one producer at a time may
        use the id; a producer that is started again uses its previous id. ``run_epoch`` is the epoch of a
        sink's run, for tasks of a sink (``transactions.begin_run``).
        """

        async def make() -> AsyncProducer:
            return self._core.producer(topic, **settings)

        return Producer(self._portal.call(make), self._portal)

    @settings_of(ConsumerSettings, consumer_options)
    def consumer(
        self, group: str | None, topics: TopicNames = (), **settings: Unpack[ConsumerSettings]
    ) -> Consumer:
        """Create a member of a group.

        It joins the group at its first use: a ``with`` block, a loop, or ``poll``. ``topics`` are names, or
        ``re.compile(...)`` for all topics that match. For a topic that does not exist, the consumer waits, or
        raises an error with ``missing="raise"``. With ``assign=[("orders", 0)]`` it reads these partitions
        without a membership, and commits nothing if ``group`` is None. With ``delivery`` ``exactly_once`` the
        ``transaction()`` of ``batches()`` commits the sent records and the offset. ``strategies`` are names,
        or objects with ``name`` and ``assign``. Raises ``Conflict`` if the group has other tags.
        """
        options = consumer_options(group, topics, **settings)

        async def make() -> ConsumerCore:
            return self._core.consumer_core(options)

        return Consumer(self._portal.call(make), self._portal)

    @settings_of(WorkerSettings, worker_options, consumer_options)
    def worker(
        self, topics: Sequence[str] | str, **settings: Unpack[WorkerSettings]
    ) -> Callable[[Handler], Handler]:
        """Decorate a function that handles one message of these topics.

        ``run`` calls the function in threads. At most ``concurrency`` calls run at a time. With ``order``
        ``key`` the messages of one key are handled one at a time and in order, with ``partition`` the
        messages of one partition; with ``none`` messages have no order. ``retry=Backoff(...)`` retries a
        message whose call raised, and ``dead_letter=True`` stores it as a dead letter after the last attempt;
        without both, ``run`` raises the error of the call. The other options are those of ``consumer``.
        """
        options = worker_options(topics, **settings)

        def register(function: Handler) -> Handler:
            check_function(function, wants_coroutine=False)

            def make_calls() -> Calls:
                return ThreadCalls(function, options.concurrency)

            self._registered.append(Registered(options, make_calls))
            return function

        return register

    def run(self, *, handle_signals: bool | None = None) -> None:
        """Call the decorated functions until ``stop``, a signal or an error, which is raised.

        Finishes the calls that have begun, commits and leaves the groups before it returns. The signals are
        SIGINT, SIGTERM and SIGHUP, which a closed terminal sends. By default a signal for which the
        application has a handler does not end ``run``; with ``handle_signals=True`` all these signals end it,
        with ``False`` no signal does. Only a call on the main thread handles signals.
        """
        with stopped_by_signals(self.stop, handle_signals):
            ended = self._portal.call(lambda: self._core.workers.run(self._registered))
        if ended is not None:
            raise ended

    def stop(self) -> None:
        """Let ``run`` return once the running calls of the decorated functions end. For any thread."""
        self._portal.post(self._core.workers.stop)

    def queue(self, topic: str, *, group: str | None = None) -> Queue:
        """Return the queue of ``group`` on a topic. The default group has the topic's name."""
        return Queue(self._core.queue(topic, group=group), self._portal)

    def partition(
        self, topic: str, number: int, *, key: Decoder | None = None, value: Decoder | None = None
    ) -> Partition:
        """Return one partition, for reading. ``key`` and ``value`` are functions that decode keys and values.

        Both functions run on the thread of the client's event loop, so they must be quick.
        """
        return Partition(self._core.partition(topic, number, key=key, value=value), self._portal)
