"""The asynchronous client: one object for a cluster, which creates producers, consumers and the like."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Self, TypeVar, Unpack

from raftlog.client import values
from raftlog.client.admin import AsyncBrokers, AsyncCluster, AsyncTopics
from raftlog.client.consumer.core import ConsumerCore
from raftlog.client.consumer.faces import AsyncConsumer
from raftlog.client.consumer.options import (
    ConsumerOptions,
    ConsumerSettings,
    TopicNames,
    consumer_options,
)
from raftlog.client.dead_letters import AsyncDeadLetters
from raftlog.client.delayed import AsyncDelayed
from raftlog.client.environment import Environment
from raftlog.client.groups import AsyncGroups
from raftlog.client.messages import Decoder, Decoders, Message
from raftlog.client.metadata import Metadata
from raftlog.client.options import (
    URL_DEFAULT,
    ClientSettings,
    Duration,
    ProducerSettings,
    TimeoutSettings,
    broker_urls,
    positive_seconds,
    producer_options,
)
from raftlog.client.partition import AsyncPartition
from raftlog.client.partitions import AsyncPartitions
from raftlog.client.portal import Portal
from raftlog.client.producer import AsyncProducer
from raftlog.client.queue import AsyncQueue
from raftlog.client.reader_place import reader_place
from raftlog.client.receipts import Receipt
from raftlog.client.schedules import AsyncSchedules
from raftlog.client.session import Session
from raftlog.client.settings import settings_of
from raftlog.client.tls import Tls
from raftlog.client.transactions import AsyncTransactions
from raftlog.client.worker.calls import Calls, CoroutineCalls, check_function
from raftlog.client.worker.options import WorkerSettings, worker_options
from raftlog.client.worker.run import Registered, Workers, stopped_by_signals
from raftlog.types import TopicPartition

URL_VARIABLE = "RAFTLOG_URL"
RACK_VARIABLE = "RAFTLOG_RACK"
Handler = TypeVar("Handler", bound=Callable[[Message], Awaitable[object]])


class AsyncClient:
    """A client of one cluster, for one event loop. Use it as an ``async with`` block.

    ``url`` is ``raftlog://host:port,host:port``, an ``http://`` URL or a list; one broker that answers is
    enough. ``request_timeout`` bounds one request, ``retry_timeout`` a call with all its retries. With a
    ``rack`` the client's readers read from the replica in that rack, as long as the replica knows all records
    that were committed ``max_staleness`` ago (10 s by default). Otherwise they read from the leader.
    ``tls`` has the files for ``https://`` URLs; by default the environment names them (``RAFTLOG_CA_FILE``).
    ``environment`` is for simulators: the clock, the randomness, the connections and the threads of this
    client.
    """

    def __init__(
        self,
        url: str | Sequence[str] = URL_DEFAULT,
        *,
        request_timeout: Duration = "10s",
        retry_timeout: Duration = "30s",
        rack: str | None = None,
        max_staleness: Duration | None = None,
        tls: Tls | None = None,
        environment: Environment | None = None,
    ) -> None:
        self._environment = environment or Environment()
        self._tls = tls
        self._session = Session(
            broker_urls(url),
            environment=self._environment,
            request_timeout_s=positive_seconds("request_timeout", request_timeout),
            retry_timeout_s=positive_seconds("retry_timeout", retry_timeout),
            tls=tls,
        )
        self._metadata = Metadata(self._session)
        self._place = reader_place(rack, max_staleness)
        self._producers: list[AsyncProducer] = []
        self._single: AsyncProducer | None = None
        self._consumers: list[ConsumerCore] = []  # they run on the loop of the second client, if there is one
        self._portal: Portal | None = None  # the thread of the second client, which consumers use
        self._second: AsyncClient | None = None
        self._registered: list[Registered] = []
        self._topics = AsyncTopics(self._session, self._metadata)
        self._cluster = AsyncCluster(self._session)
        self._brokers = AsyncBrokers(self._session)
        self._partitions = AsyncPartitions(self._session)
        self._groups = AsyncGroups(self._session)
        self._dead_letters = AsyncDeadLetters(self._session)
        self._transactions = AsyncTransactions(self._session)
        self._delayed = AsyncDelayed(self._session)
        self._schedules = AsyncSchedules(self._session)
        self.workers = Workers(self._session, self._topics, self.consumer_core, self.send, self._delayed.send)

    def __repr__(self) -> str:
        state = "open" if self._session.is_open else "not open"
        return f"<raftlog.aio.Client {self._addresses} {state}>"

    @property
    def _addresses(self) -> str:
        """The addresses that the client was given, separated by commas."""
        return ",".join(self._session.given_urls)

    @property
    def topics(self) -> AsyncTopics:
        """The topics: create, describe, change and delete them."""
        return self._topics

    @property
    def cluster(self) -> AsyncCluster:
        """The cluster as a whole: its state, plans of balancing, tokens to join."""
        return self._cluster

    @property
    def brokers(self) -> AsyncBrokers:
        """The brokers of the cluster."""
        return self._brokers

    @property
    def partitions(self) -> AsyncPartitions:
        """The partitions of the cluster."""
        return self._partitions

    @property
    def groups(self) -> AsyncGroups:
        """The consumer groups: members, offsets and lag."""
        return self._groups

    @property
    def dead_letters(self) -> AsyncDeadLetters:
        """The dead letters: records that consumer groups could not process."""
        return self._dead_letters

    @property
    def transactions(self) -> AsyncTransactions:
        """The transactions, and the runs of sinks."""
        return self._transactions

    @property
    def delayed(self) -> AsyncDelayed:
        """The delayed messages, which are stored in their topics at a later time."""
        return self._delayed

    @property
    def schedules(self) -> AsyncSchedules:
        """The schedules, which send records at the times of cron expressions."""
        return self._schedules

    @property
    def rack(self) -> str | None:
        """The rack of the client's readers."""
        return None if self._place is None else self._place.rack

    @classmethod
    @settings_of(ClientSettings, __init__)
    def from_url(cls, url: str, **settings: Unpack[ClientSettings]) -> Self:
        """Create a client for a URL."""
        return cls(url, **settings)

    @classmethod
    @settings_of(TimeoutSettings, __init__)
    def from_env(cls, environ: Mapping[str, str] | None = None, **settings: Unpack[TimeoutSettings]) -> Self:
        """Create a client from the environment variables ``RAFTLOG_URL`` and ``RAFTLOG_RACK``."""
        return cls(url_from(environ), rack=rack_from(environ), **settings)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close(0 if isinstance(error, asyncio.CancelledError) else "30s")

    async def open(self) -> None:
        """Open the client; connections are made on demand."""
        if self._session.is_open:
            self._session.check_loop()
        else:
            await self._session.open()

    async def close(self, timeout: Duration = "30s") -> None:
        """Flush all producers, for at most ``timeout``, and close all connections."""
        self._session.check_loop()
        await self._close_consumers()
        await asyncio.gather(*(producer.close(timeout) for producer in self._producers))
        self._producers.clear()
        self._single = None  # the client may be opened again
        if self._portal is not None and self._second is not None:
            await self._portal.awaited(self._second.close)
            await asyncio.to_thread(self._portal.close)
            self._portal = self._second = None
        await self._metadata.close()
        await self._session.close()

    async def _close_consumers(self) -> None:
        """Close all consumers on the event loop of the second client, or else of this client."""

        async def close_all() -> None:
            await asyncio.gather(*(consumer.close() for consumer in self._consumers))

        await (close_all() if self._portal is None else self._portal.awaited(close_all))
        self._consumers.clear()

    @settings_of(ProducerSettings, producer_options)
    def producer(self, topic: str | None = None, **settings: Unpack[ProducerSettings]) -> AsyncProducer:
        """A producer for one topic, or for any topic if each send names it. Options are checked here.

        ``delivery`` sets options that belong together, and refuses options that contradict it:
        ``at_most_once`` sends a record once, without an acknowledgement, ``at_least_once`` repeats it until a
        majority has stored it, ``exactly_once`` also sends in transactions. Without ``delivery``, ``acks`` is
        ``quorum``, and repetitions are stored once. With a ``transactional_id`` the producer sends in
        transactions, each of which is aborted after ``transaction_timeout``. Only one producer at a time may
        use the id; a producer that is started again uses its previous id. ``run_epoch`` is the epoch of a
        sink's run, for tasks of a sink (``transactions.begin_run``).
        """
        made = AsyncProducer(self._session, self._metadata, topic, producer_options(**settings))
        self._producers = [producer for producer in self._producers if not producer.is_closed] + [made]
        return made

    async def send(
        self,
        topic: str,
        value: values.Value = None,
        *,
        key: values.Key = None,
        partition: int | None = None,
        headers: values.Headers | None = None,
        tags: Sequence[str] = (),
        timestamp: datetime | int | None = None,
    ) -> Receipt:
        """Send one record and wait until it is stored. For many records a ``producer`` is much faster."""
        if self._single is None:
            self._single = self.producer(preset="latency")
        return await (
            await self._single.send(
                value,
                key=key,
                topic=topic,
                partition=partition,
                headers=headers,
                tags=tags,
                timestamp=timestamp,
            )
        )

    def consumer_core(self, options: ConsumerOptions) -> ConsumerCore:
        """A consumer that runs on this client's loop; the blocking and the asynchronous consumer wrap it."""
        core = self._new_core(options)
        self._keep(core)
        return core

    def _keep(self, core: ConsumerCore) -> None:
        """Note a consumer, so that closing the client closes the consumer."""
        self._consumers = [consumer for consumer in self._consumers if not consumer.is_closed] + [core]

    def _new_core(self, options: ConsumerOptions) -> ConsumerCore:
        """Create a consumer that stays open when the client is closed. May be called from any thread."""

        def open_partition(target: TopicPartition) -> AsyncPartition:
            where = target.topic, target.partition
            return AsyncPartition(self._session, self._metadata, *where, options.decoders, self._place)

        def prepare_producer(transactional_id: str) -> Callable[[], AsyncProducer]:
            settings: ProducerSettings = {
                "transactional_id": transactional_id,
                "transaction_timeout": options.transaction_timeout,
            }
            producer_options(**settings)  # refuses wrong settings now, not when the consumer begins
            return partial(self.producer, **settings)

        return ConsumerCore(self._session, options, open_partition, self.topics, prepare_producer)

    @settings_of(ConsumerSettings, consumer_options)
    def consumer(
        self, group: str | None, topics: TopicNames = (), **settings: Unpack[ConsumerSettings]
    ) -> AsyncConsumer:
        """Create a member of a group, which joins at its first use; see ``raftlog.Client.consumer``."""
        options = consumer_options(group, topics, **settings)
        portal, second = self._background()
        core = second._new_core(options)
        self._keep(core)
        return AsyncConsumer(core, portal)

    def _background(self) -> tuple[Portal, AsyncClient]:
        """A second client with its own event loop, which runs even while the application's loop is blocked.

        The first consumer that begins opens this client.
        """
        if self._portal is None or self._second is None:
            self._portal, place = self._environment.portal(), self._place
            self._second = AsyncClient(
                self._session.given_urls,
                environment=self._environment,
                request_timeout=timedelta(seconds=self._session.request_timeout_s),
                retry_timeout=timedelta(seconds=self._session.retry_timeout_s),
                tls=self._tls,
                **({} if place is None else place.options),
            )
        return self._portal, self._second

    @settings_of(WorkerSettings, worker_options, consumer_options)
    def worker(
        self, topics: Sequence[str] | str, **settings: Unpack[WorkerSettings]
    ) -> Callable[[Handler], Handler]:
        """Decorate an ``async def`` that handles one message of these topics. ``run`` calls the function.

        The options are those of ``raftlog.Client.worker``.
        """
        options = worker_options(topics, **settings)

        def register(function: Handler) -> Handler:
            check_function(function, wants_coroutine=True)

            def make_calls() -> Calls:
                return CoroutineCalls(function, loop)

            self._registered.append(Registered(options, make_calls))
            return function

        loop = asyncio.get_running_loop()
        return register

    async def run(self, *, handle_signals: bool | None = None) -> None:
        """Call the decorated functions until ``stop`` or an error; see ``raftlog.Client.run``.

        Signals are left to the application, unless ``handle_signals`` is True: then SIGINT, SIGTERM and
        SIGHUP stop this call.
        """
        portal, second = self._background()
        await portal.awaited(second.open)
        with stopped_by_signals(self.stop, bool(handle_signals)):
            ended = await portal.awaited(lambda: second.workers.run(self._registered))
        if ended is not None:
            raise ended

    def stop(self) -> None:
        """Let ``run`` return once the running calls of the decorated functions end."""
        if self._portal is not None and self._second is not None:
            self._portal.post(self._second.workers.stop)

    def queue(self, topic: str, *, group: str | None = None) -> AsyncQueue:
        """Return the queue of ``group`` on a topic. The default group has the topic's name."""
        return AsyncQueue(self._session, topic, topic if group is None else group)

    def partition(
        self, topic: str, number: int, *, key: Decoder | None = None, value: Decoder | None = None
    ) -> AsyncPartition:
        """Return one partition, for reading.

        ``key`` and ``value`` are functions that decode keys and values.
        """
        if not isinstance(topic, str):
            raise TypeError(f"topic is {topic!r}; give its name as text")
        if type(number) is not int:
            raise TypeError(f"number is {number!r}; give the partition's number, such as 0")
        if number < 0:
            raise ValueError(f"number is {number}; partitions count from 0")
        decoders = Decoders(key, value)
        return AsyncPartition(self._session, self._metadata, topic, number, decoders, self._place)


def url_from(environ: Mapping[str, str] | None) -> str:
    """The URL in the environment, or the default URL if the variable is missing or blank."""
    return (os.environ if environ is None else environ).get(URL_VARIABLE, "").strip() or URL_DEFAULT


def rack_from(environ: Mapping[str, str] | None) -> str | None:
    """The rack in the environment; None if the variable is missing or blank."""
    return (os.environ if environ is None else environ).get(RACK_VARIABLE, "").strip() or None
