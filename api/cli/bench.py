"""Commands that load a running cluster and report throughput and latency: ``bench``.

Batches are built before the load begins, and responses are not parsed, so that the results depend on the
brokers and not on this client. Leaves to others: the loop (``closed_loop``), the connections (``raw_http``),
comparisons with other systems (``bench``).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated

from api.cli.connection import connected
from api.cli.output import DEFAULT_SERVER, ServerOption, errors_reported, show
from api.cli.parameters import Option

if TYPE_CHECKING:
    from api.cli.closed_loop import Measured

TopicOption = Annotated[str, Option(help="The topic; created if it does not exist.")]
PartitionsOption = Annotated[int, Option(min=1, help="Partitions of a created topic.")]
RecordsOption = Annotated[int | None, Option(min=1, help="Stop after this number of records.")]
RecordBytesOption = Annotated[int, Option(min=0, help="Size of a record's value.")]
BatchOption = Annotated[int, Option(min=1, help="Records in a batch.")]
SecondsOption = Annotated[float, Option(min=0.1, help="Stop after this time.")]
InFlightOption = Annotated[int, Option(min=1, help="Requests in flight for each partition.")]


def produce(
    topic: TopicOption = "bench",
    partitions: PartitionsOption = 4,
    records: RecordsOption = None,
    record_bytes: RecordBytesOption = 1024,
    batch: BatchOption = 100,
    seconds: SecondsOption = 10,
    in_flight: InFlightOption = 4,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Produce batches to all partitions of a topic, as fast as they are acknowledged."""
    with errors_reported(changing=True):
        leaders = _leaders(server, topic, partitions)
        _run(
            lambda: _send(leaders * in_flight, topic, batch, record_bytes, seconds, records),
            topic,
            record_bytes,
        )


def latency(
    topic: TopicOption = "bench",
    partitions: PartitionsOption = 4,
    records: RecordsOption = None,
    record_bytes: RecordBytesOption = 1024,
    seconds: SecondsOption = 10,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Produce single records to the first partition, each after the receipt of the previous record."""
    with errors_reported(changing=True):
        leaders = _leaders(server, topic, partitions)
        _run(lambda: _send(leaders[:1], topic, 1, record_bytes, seconds, records), topic, record_bytes)


def consume(
    topic: Annotated[str, Option(help="The topic, from its beginning.")] = "bench",
    records: RecordsOption = None,
    seconds: SecondsOption = 10,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Read all partitions of a topic in binary batches, up to their ends."""
    with errors_reported():
        leaders = _leaders(server, topic, None)
        _run(lambda: _read(leaders, topic, seconds, records), topic, None)


def _run(work: Callable[[], Awaitable[tuple[Measured, int]]], topic: str, record_bytes: int | None) -> None:
    import uvloop

    async def run() -> tuple[Measured, int]:
        return await work()

    measured, size_bytes_per_s = uvloop.run(run())
    row: dict[str, object] = {
        "topic": topic,
        "requests": measured.requests,
        "records_per_s": round(measured.records_per_s),
        "mb_per_s": round(size_bytes_per_s / 1e6, 1),
        "p50_ms": round(measured.p50_ms, 3),
        "p99_ms": round(measured.p99_ms, 3),
    }
    if record_bytes is not None:
        row["record_bytes"] = record_bytes
    show([row], single=True)


def _leaders(server: str, topic: str, partitions: int | None) -> list[tuple[int, str]]:
    """Return each partition with the address of its leader. Creates the topic if ``partitions`` is given."""
    from raftlog.client.options import broker_urls, usable_url
    from raftlog.errors import NoLeader

    with connected(server) as client:
        if partitions is not None:
            client.topics.create(topic, partitions=partitions, exist_ok=True)
        for _ in range(100):
            urls = {
                each.broker_id: usable_url(broker_urls(server)[0], each.http)
                for each in client.brokers.list()
            }
            found = client.topics.partitions(topic)
            leaders = [
                (each.partition, url) for each in found if each.leader and (url := urls.get(each.leader))
            ]
            if len(leaders) == len(found):
                return leaders
            time.sleep(0.1)
    raise NoLeader(f"a partition of {topic} has no leader", topic=topic)


async def _send(
    targets: Sequence[tuple[int, str]],
    topic: str,
    batch: int,
    record_bytes: int,
    seconds: float,
    records: int | None,
) -> tuple[Measured, int]:
    from api.cli import closed_loop, raw_http
    from raftlog.records.batch import Codec
    from raftlog.records.builder import Record, build_batch

    data = build_batch([Record(b"x" * record_bytes)] * batch, codec=Codec.NONE, timestamp_ms=0)
    connections = [
        await raw_http.connect(url, raw_http.produce_request(url, topic, partition, data))
        for partition, url in targets
    ]
    try:
        requests_max = None if records is None else max(records // batch, 1)
        found = await closed_loop.run(connections, records=batch, seconds=seconds, requests_max=requests_max)
    finally:
        for connection in connections:
            await connection.close()
    return found, round(found.records_per_s * record_bytes)


async def _read(
    targets: Sequence[tuple[int, str]], topic: str, seconds: float, records: int | None
) -> tuple[Measured, int]:
    from api.cli import closed_loop, raw_http

    latencies: list[float] = []
    counts = [0, 0]  # records and bytes
    began = time.perf_counter()
    ended = began

    async def follow(partition: int, url: str) -> None:
        nonlocal ended
        reader = raw_http.HttpReader(await raw_http.connect(url), url, topic, partition, wait="0")
        try:
            await reader.seek_start()
            while (asked := time.perf_counter()) < began + seconds:
                got = await reader.read()
                if not got[0] or (records is not None and counts[0] >= records):
                    return
                ended = time.perf_counter()
                latencies.append(ended - asked)
                counts[0] += got[0]
                counts[1] += got[1]
        finally:
            await reader.close()

    await asyncio.gather(*(follow(partition, url) for partition, url in targets))
    took_s = max(ended - began, 1e-9)
    return closed_loop.measured(latencies or [0.0], records=counts[0], took_s=took_s), round(
        counts[1] / took_s
    )
