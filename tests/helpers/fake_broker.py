"""A small broker over HTTP: partitions in memory, and faults for a client.

It deduplicates by producer, epoch and sequence with a window of five, accepts any sequence of an
unknown producer, and responds with the bodies of the contract. ``trouble`` queues faults:
each produce takes the next one.
"""

from __future__ import annotations

import asyncio
import enum
import itertools
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import msgspec
from aiohttp import web

from api.http.errors import problem_response
from raftlog import errors
from raftlog.errors import Detail, RaftlogError
from raftlog.records.batch import SEQUENCE_MAX, Batch, BatchHeader, check_batch, split_batches, stamp
from raftlog.records.reader import StoredRecord, read_records
from raftlog.wire import bodies, headers, media_types
from raftlog.wire.limits import PRODUCER_BATCHES_MAX

WINDOW = PRODUCER_BATCHES_MAX
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Trouble(enum.Enum):
    """A fault of a produce, before or after the append."""

    NONE = enum.auto()
    NO_LEADER = enum.auto()
    OVERLOADED = enum.auto()
    TOO_LARGE = enum.auto()
    DROP_BEFORE = enum.auto()  # the connection closes and nothing was written
    DROP_AFTER = enum.auto()  # it was written and the connection closes
    HANG_AFTER = enum.auto()  # it was written and no answer comes
    UNKNOWN_AFTER = enum.auto()  # it was written and the answer is commit_unknown
    SLOW = enum.auto()  # later requests overtake this one


@dataclass(slots=True)
class FakePartition:
    """The log of one partition and the state of its producers."""

    batches: list[Batch] = field(default_factory=list)
    end: int = 0
    producers: dict[int, tuple[int, deque[tuple[int, int, int]]]] = field(default_factory=dict)
    grew: asyncio.Event = field(default_factory=asyncio.Event)

    def records(self) -> list[StoredRecord]:
        """All records in order."""
        return [record for batch in self.batches for record in read_records(batch)]

    def values(self) -> list[bytes | None]:
        """The values of all records in order."""
        return [record.value for record in self.records()]

    def append(self, data: bytes) -> tuple[int, int]:
        """Base offset and number of records; a known batch is not appended again."""
        (batch,) = split_batches(data)
        check_batch(batch)
        known = self._check(batch.header)
        if known is not None:
            return known, batch.header.record_count
        base = self.end
        self.batches.append(stamp(data, base_offset=base, leader_epoch=1, append_time_ms=None))
        self.end += batch.header.record_count
        self._remember(batch.header, base)
        self.grew.set()
        self.grew = asyncio.Event()
        return base, batch.header.record_count

    def _check(self, header: BatchHeader) -> int | None:
        if header.producer_id < 0 or header.producer_id not in self.producers:
            return None
        epoch, window = self.producers[header.producer_id]
        if header.producer_epoch < epoch:
            raise errors.ProducerFenced("an older epoch", current_epoch=epoch)
        if header.producer_epoch == epoch:
            for first, last, base in window:
                if (first, last) == (header.base_sequence, header.last_sequence):
                    return base
        expected = 0 if header.producer_epoch > epoch else (window[-1][1] + 1) & SEQUENCE_MAX
        if header.base_sequence != expected:
            raise errors.OutOfOrderSequence("a batch is missing", expected_sequence=expected)
        return None

    def _remember(self, header: BatchHeader, base: int) -> None:
        if header.producer_id < 0:
            return
        epoch, window = self.producers.get(header.producer_id, (-1, deque()))
        if epoch != header.producer_epoch:
            window = deque(maxlen=WINDOW)
        window.append((header.base_sequence, header.last_sequence, base))
        self.producers[header.producer_id] = (header.producer_epoch, window)


class FakeCluster:
    """Shared state of the brokers of a cluster: the logs, their leaders, and queued faults."""

    def __init__(self, partitions: int = 1, topic: str = "orders") -> None:
        self.topics: dict[str, list[FakePartition]] = {topic: [FakePartition() for _ in range(partitions)]}
        self.brokers: dict[int, FakeBroker] = {}
        self.leader = self.term = 1
        self.known_leader: int | None = None  # what metadata says, when it is wrong
        self.troubles: deque[Trouble] = deque()
        self.partition_troubles: dict[int, deque[Trouble]] = {}
        self.racks: dict[int, str] = {}
        self.replicas, self.in_sync = [1], [1]
        self.closest_reads: list[tuple[int, dict[str, str]]] = []  # the broker asked, and its query
        self.cannot_serve: dict[int, RaftlogError] = {}  # what replicas that do not lead answer
        self.waiting_reads = 0  # at the end of a partition
        self.silent: set[int] = set()  # replicas that do not answer such reads
        self.produce_count = self.metadata_count = 0
        self.requests: list[str] = []  # method and path of each
        self.in_flight = self.in_flight_most = 0
        self.retry_after_ms = 5  # what OVERLOADED asks for
        self.produce_s = 0.0  # that each produce takes
        self.gaps = 0
        self.corrupt_reads = False
        self.endless_reads = False
        self.fetched_bytes = 0  # of all answers with batches
        self.producer_ids = itertools.count(1000)
        self.release = asyncio.Event()  # ends what hangs
        self.knows = asyncio.Event()  # cleared: no broker answers what is not about records
        self.knows.set()
        self.refusal: RaftlogError | None = None  # the answer to what is not about records

    def partition(self, number: int = 0, topic: str = "orders") -> FakePartition:
        return self.topics[topic][number]

    def trouble(self, *troubles: Trouble) -> None:
        """The faults of the next produces, one each."""
        self.troubles.extend(troubles)

    async def replace(self, broker: FakeBroker) -> None:
        """Another broker listens at the address of the one with its number."""
        former = self.brokers[broker.number]
        await former.stop()
        self.brokers[broker.number], broker.url = broker, former.url
        await broker.start()

    @property
    def urls(self) -> list[str]:
        """The addresses of all running brokers."""
        return [broker.url for broker in self.brokers.values()]


class FakeBroker:
    """One listener. Any broker serves metadata; only the leader accepts produces and fetches."""

    def __init__(self, cluster: FakeCluster, number: int) -> None:
        self.cluster = cluster
        self.number = number
        self.url = ""
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen on a free port, or on the previous one."""
        app = web.Application(client_max_size=64 << 20, middlewares=[self._problems])
        app.router.add_get("/v1/brokers", self._brokers)
        app.router.add_get("/v1/cluster", self._about)
        app.router.add_post("/v1/producers", self._producer)
        app.router.add_get("/v1/topics", self._topics)
        app.router.add_post("/v1/topics", self._create)
        app.router.add_get("/v1/topics/{topic}", self._topic)
        app.router.add_delete("/v1/topics/{topic}", self._delete)
        app.router.add_get("/v1/topics/{topic}/partitions", self._partitions)
        app.router.add_post("/v1/topics/{topic}/partitions/{partition}/records", self._produce)
        app.router.add_get("/v1/topics/{topic}/partitions/{partition}/records", self._fetch)
        app.router.add_get("/v1/topics/{topic}/partitions/{partition}/offsets", self._offset)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        port = int(self.url.rpartition(":")[2]) if self.url else 0
        site = web.TCPSite(self._runner, "127.0.0.1", port)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        """Close the listener and all connections."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    @property
    def is_running(self) -> bool:
        """Whether it listens."""
        return self._runner is not None

    @web.middleware
    async def _problems(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self.cluster.requests.append(f"{request.method} {request.path}")
        if not request.path.endswith("/records"):
            await self.cluster.knows.wait()
        try:
            if self.cluster.refusal is not None and not request.path.endswith("/records"):
                raise self.cluster.refusal
            response: web.StreamResponse = await handler(request)
        except RaftlogError as error:
            response = problem_response(error, instance=request.path, request_id="1")
        response.headers[headers.METADATA_VERSION] = "1"
        return response

    def _find(self, request: web.Request) -> tuple[int, FakePartition]:
        topic, number = request.match_info["topic"], int(request.match_info["partition"])
        if topic not in self.cluster.topics:
            raise errors.TopicNotFound(f"there is no topic {topic}")
        assert request.query.get("route", "none") == "none"
        leader = self.cluster.leader
        if request.query.get("read_from") == "closest":
            return number, self.cluster.topics[topic][number]
        if leader != self.number:
            details: dict[str, Detail] = {"leader": leader}
            if leader in self.cluster.brokers:
                details["leader_http"] = self.cluster.brokers[leader].url.removeprefix("http://")
            raise errors.NotLeader("not here", **details)
        return number, self.cluster.topics[topic][number]

    async def _produce(self, request: web.Request) -> web.Response:
        cluster = self.cluster
        body = await request.read()
        cluster.produce_count += 1
        number, partition = self._find(request)
        assert request.content_type == media_types.BATCH
        own = cluster.partition_troubles.get(number)
        queue = cluster.troubles if own is None else own
        trouble = queue.popleft() if queue else Trouble.NONE
        cluster.in_flight += 1
        cluster.in_flight_most = max(cluster.in_flight_most, cluster.in_flight)
        try:
            if cluster.produce_s:
                await asyncio.sleep(cluster.produce_s)
            return await self._produced(request, number, partition, body, trouble)
        except errors.OutOfOrderSequence:
            cluster.gaps += 1
            raise
        finally:
            cluster.in_flight -= 1

    async def _produced(
        self, request: web.Request, number: int, partition: FakePartition, body: bytes, trouble: Trouble
    ) -> web.Response:
        match trouble:
            case Trouble.NO_LEADER:
                raise errors.NoLeader("electing")
            case Trouble.OVERLOADED:
                raise errors.Overloaded("too much", retry_after_ms=self.cluster.retry_after_ms)
            case Trouble.TOO_LARGE:
                raise errors.RecordTooLarge("too large", limit_bytes=10)
            case Trouble.DROP_BEFORE:
                return _dropped(request)
            case Trouble.SLOW:
                await asyncio.sleep(0.03)
            case _:
                pass
        base, count = partition.append(body)
        match trouble:
            case Trouble.DROP_AFTER:
                return _dropped(request)
            case Trouble.HANG_AFTER:
                await self.cluster.release.wait()
            case Trouble.UNKNOWN_AFTER:
                raise errors.CommitUnknown("the time ran out")
            case _:
                await asyncio.sleep(0)
        acks = request.query["acks"]
        if acks == "0":
            return _json(bodies.Accepted(count), 202)
        return _json(
            bodies.BatchesProduced(number, base, count, bodies.RecordDurability(acks, True, True, 2), 1)
        )

    async def _endless(self, request: web.Request) -> web.StreamResponse:
        """Zeros until the client has enough."""
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(bytes(1 << 20))
            self.cluster.fetched_bytes += 1 << 20

    async def _fetch(self, request: web.Request) -> web.StreamResponse:
        _, partition = self._find(request)
        if request.query.get("read_from") == "closest":
            self.cluster.closest_reads.append((self.number, dict(request.query)))
            if self.number in self.cluster.silent:
                await self.cluster.release.wait()
            if self.number in self.cluster.cannot_serve:
                raise self.cluster.cannot_serve[self.number]
        offset = int(request.query["offset"])
        if offset > partition.end:
            raise errors.OffsetOutOfRange("above the end", start=0, end=partition.end)
        if offset == partition.end:
            wait_s = int(request.query["wait"].removesuffix("ms")) / 1000
            self.cluster.waiting_reads += 1
            try:
                await asyncio.wait_for(partition.grew.wait(), wait_s)
            except TimeoutError:
                return web.Response(status=204, headers=_places(offset, partition))
            finally:
                self.cluster.waiting_reads -= 1
            self._find(request)
        data = bytearray()
        following = offset
        for batch in partition.batches:
            if batch.last_offset >= offset and (not data or len(data) < int(request.query["max_bytes"])):
                data += batch.data
                following = batch.last_offset + 1
        if self.cluster.corrupt_reads:
            data[-1] ^= 0x01
        if self.cluster.endless_reads:
            return await self._endless(request)
        self.cluster.fetched_bytes += len(data)
        return web.Response(
            body=bytes(data), content_type=media_types.BATCH, headers=_places(following, partition)
        )

    async def _offset(self, request: web.Request) -> web.Response:
        partition = self.cluster.topics[request.match_info["topic"]][int(request.match_info["partition"])]
        at = request.query["at"]
        if at.startswith("timestamp:"):
            since = int(at.removeprefix("timestamp:"))
            found = [record for record in partition.records() if record.timestamp_ms >= since]
            return _json(bodies.FoundOffset(found[0].offset if found else partition.end))
        if at in ("earliest", "latest"):
            return _json(bodies.FoundOffset(0 if at == "earliest" else partition.end))
        return _json(bodies.FoundOffset(max(0, partition.end + int(at))))

    async def _brokers(self, request: web.Request) -> web.Response:
        self.cluster.metadata_count += 1
        return _json(
            bodies.BrokerList(
                [
                    bodies.BrokerDescription(
                        number, broker.url, self.cluster.racks.get(number), broker.is_running, False
                    )
                    for number, broker in self.cluster.brokers.items()
                ]
            )
        )

    async def _partitions(self, request: web.Request) -> web.Response:
        topic = self._topic_named(request)
        known = self.cluster.known_leader
        leader = (self.cluster.leader if known is None else known) or None  # broker 0: an election is held
        return _json(
            bodies.PartitionList(
                [
                    bodies.PartitionDescription(
                        *(number, leader, self.cluster.term),
                        *(self.cluster.replicas, [], self.cluster.in_sync),
                        *(one.end - 1, 0, one.end, one.end, 0),
                    )
                    for number, one in enumerate(self.cluster.topics[topic])
                ]
            )
        )

    async def _producer(self, request: web.Request) -> web.Response:
        return _json(bodies.ProducerIdentity(next(self.cluster.producer_ids), 0), 201)

    async def _about(self, request: web.Request) -> web.Response:
        return _json(bodies.ClusterDescription("c", 1, 1, len(self.cluster.brokers), "0"))

    async def _create(self, request: web.Request) -> web.Response:
        wanted = msgspec.json.decode(await request.read(), type=bodies.CreateTopic)
        if wanted.name in self.cluster.topics:
            raise errors.TopicExists(f"{wanted.name} exists")
        self.cluster.topics[wanted.name] = [FakePartition() for _ in range(wanted.partitions)]
        return _json(self._topic_body(wanted.name, wanted.config), 201)

    async def _topics(self, request: web.Request) -> web.Response:
        return _json(bodies.TopicList([self._topic_body(name) for name in sorted(self.cluster.topics)]))

    async def _topic(self, request: web.Request) -> web.Response:
        return _json(self._topic_body(self._topic_named(request)))

    async def _delete(self, request: web.Request) -> web.Response:
        del self.cluster.topics[self._topic_named(request)]
        return _json(bodies.TopicDeleted(request.match_info["topic"], 2))

    def _topic_named(self, request: web.Request) -> str:
        topic = request.match_info["topic"]
        if topic not in self.cluster.topics:
            raise errors.TopicNotFound(f"there is no topic {topic}")
        return topic

    def _topic_body(
        self, name: str, config: dict[str, bodies.SettingValue] | None = None
    ) -> bodies.TopicDescription:
        return bodies.TopicDescription(
            name, "0" * 32, len(self.cluster.topics[name]), 1, False, config or {}, 1
        )


@asynccontextmanager
async def fake_cluster(partitions: int = 1, brokers: int = 1) -> AsyncIterator[FakeCluster]:
    """A cluster that runs inside the block, in the time of its loop."""
    cluster = FakeCluster(partitions)
    for number in range(1, brokers + 1):
        cluster.brokers[number] = FakeBroker(cluster, number)
        await cluster.brokers[number].start()
    try:
        yield cluster
    finally:
        cluster.release.set()
        for broker in cluster.brokers.values():
            await broker.stop()


def _json(body: msgspec.Struct, status: int = 200) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(body), content_type=media_types.JSON)


def _places(following: int, partition: FakePartition) -> dict[str, str]:
    return {
        headers.NEXT_OFFSET: str(following),
        headers.HIGH_WATERMARK: str(partition.end),
        headers.LAST_STABLE_OFFSET: str(partition.end),
        headers.LOG_START_OFFSET: "0",
        headers.LEADER_EPOCH: "1",
    }


def _dropped(request: web.Request) -> web.Response:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()
