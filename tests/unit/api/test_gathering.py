"""Small produces that come at the same time share a batch, and none of them can tell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import cast

import pytest

from api.http.batching import BATCH_BYTES_MAX, HOLD_S, IN_FLIGHT_MAX, Part, RequestBatcher
from raftlog.errors import InvalidRecord, NotEnoughReplicas, RecordTooLarge
from raftlog.records.builder import Record
from raftlog.records.reader import read_records
from raftlog.types import Offset, TopicPartition
from tests.helpers.fake_services import FakeCluster, fake_cluster
from tests.helpers.http_server import HttpServer, served

ANY = range(4)
ORDERS = "orders"


def part(*values: str, size_bytes: int = 100, bytes_max: int = 1 << 20, now_ms: int = 7) -> Part:
    """The records of one request."""
    records = [Record(value.encode()) for value in values]
    return Part(records, size_bytes=size_bytes, bytes_max=bytes_max, now_ms=now_ms)


@asynccontextmanager
async def gathering() -> AsyncIterator[tuple[FakeCluster, RequestBatcher]]:
    """A cluster with a topic of four partitions."""
    cluster = fake_cluster(None)
    await cluster.services.controller.create_topic(
        ORDERS,
        partitions=4,
        replication_factor=3,
        config={"message.timestamp.type": "CreateTime"},
        timeout_ms=1000,
    )
    yield cluster, RequestBatcher(cluster.services.gateway, Random(1), 1000)


def batches_of(cluster: FakeCluster) -> list[list[bytes | None]]:
    """The values of every batch in every partition."""
    logs = [cluster.gateway.log(TopicPartition(ORDERS, partition)) for partition in ANY]
    return [[record.value for record in read_records(batch)] for log in logs for batch in log.batches]


async def test_what_comes_in_one_turn_is_one_batch_and_each_request_is_told_its_own_offsets() -> None:
    async with gathering() as (cluster, batcher):
        parts = [part("a"), part("b", "c"), part("d")]
        receipts = await asyncio.gather(*(batcher.append(ORDERS, (2,), each) for each in parts))
        assert [receipt.base_offset for receipt in receipts] == [0, 1, 3]
        assert [receipt.record_count for receipt in receipts] == [1, 2, 1]
        assert batches_of(cluster) == [[b"a", b"b", b"c", b"d"]]


async def test_a_record_without_a_time_has_that_of_its_own_request() -> None:
    async with gathering() as (cluster, batcher):
        parts = [part("a", now_ms=5), part("b", now_ms=3)]
        await asyncio.gather(*(batcher.append(ORDERS, (0,), each) for each in parts))
        (batch,) = cluster.gateway.log(TopicPartition(ORDERS, 0)).batches
        assert [record.timestamp_ms for record in read_records(batch)] == [5, 3]


async def test_records_without_a_place_go_together_and_all_partitions_have_their_turn() -> None:
    async with gathering() as (_, batcher):
        seen = set()
        for _ in range(40):
            parts = [part("a"), part("b")]
            await asyncio.gather(*(batcher.append(ORDERS, ANY, each) for each in parts))
            assert parts[0].target == parts[1].target
            seen.add(parts[0].target)
        assert len(seen) == len(ANY)


async def test_while_batches_are_under_way_the_next_requests_gather() -> None:
    async with gathering() as (cluster, batcher):
        cluster.gateway.append_delay_s = HOLD_S / 2
        waiting = []
        for turn in range(IN_FLIGHT_MAX + 3):
            waiting.append(asyncio.ensure_future(batcher.append(ORDERS, (0,), part(str(turn)))))
            await asyncio.sleep(0.001)
        await asyncio.gather(*waiting)
        assert batches_of(cluster) == [[b"0"], [b"1"], [b"2", b"3", b"4"]]


async def test_a_batch_that_hangs_holds_nobody_for_long() -> None:
    async with gathering() as (cluster, batcher):
        loop = asyncio.get_running_loop()
        cluster.gateway.append_delay_s = 1000
        hanging = []
        for turn in range(IN_FLIGHT_MAX):
            hanging.append(asyncio.ensure_future(batcher.append(ORDERS, ANY, part(str(turn)))))
            await asyncio.sleep(0.001)
        cluster.gateway.append_delay_s = 0
        began = loop.time()
        batches = 3  # what comes later fills these, and each is held for its turn alone
        late = [part("late", size_bytes=BATCH_BYTES_MAX) for _ in range(batches)]
        await asyncio.gather(*(batcher.append(ORDERS, ANY, each) for each in late))
        assert loop.time() - began == pytest.approx(batches * HOLD_S)
        assert not any(task.done() for task in hanging)


async def test_a_batch_takes_no_more_than_fits() -> None:
    async with gathering() as (cluster, batcher):
        third = BATCH_BYTES_MAX // 3 + 1
        parts = [part(str(number), size_bytes=third) for number in range(4)]
        await asyncio.gather(*(batcher.append(ORDERS, (0,), each) for each in parts))
        assert batches_of(cluster) == [[b"0", b"1"], [b"2", b"3"]]


async def test_a_topic_that_takes_less_than_expected_refuses_only_whom_it_must() -> None:
    async with gathering() as (cluster, batcher):
        await cluster.services.controller.alter_config(
            ORDERS, {"max.message.bytes": 1024}, expected_version=None, timeout_ms=1000
        )
        parts = [part("a" * 500), part("b" * 1500), part("c" * 500)]
        outcomes = await asyncio.gather(
            *(batcher.append(ORDERS, (0,), each) for each in parts), return_exceptions=True
        )
        assert [isinstance(outcome, RecordTooLarge) for outcome in outcomes] == [False, True, False]
        assert batches_of(cluster) == [[b"a" * 500], [b"c" * 500]]


async def test_a_request_without_a_key_is_refused_alone() -> None:
    async with gathering() as (cluster, batcher):
        await cluster.services.controller.alter_config(
            ORDERS, {"cleanup.policy": "compact"}, expected_version=None, timeout_ms=1000
        )
        keyed = [
            Part([Record(b"v", key)], size_bytes=100, bytes_max=1 << 20, now_ms=7)
            for key in (b"a", b"b", b"c", b"d")
        ]
        parts = [*keyed[:3], part("no key"), keyed[3]]
        outcomes = await asyncio.gather(
            *(batcher.append(ORDERS, (0,), each) for each in parts), return_exceptions=True
        )
        assert [isinstance(outcome, InvalidRecord) for outcome in outcomes] == [
            each not in keyed for each in parts
        ]
        stored = cluster.gateway.log(TopicPartition(ORDERS, 0)).batches
        assert [record.key for batch in stored for record in read_records(batch)] == [b"a", b"b", b"c", b"d"]


async def test_a_request_whose_records_cannot_be_encoded_fails_alone() -> None:
    async with gathering() as (cluster, batcher):
        broken = part("b")
        broken.records = [Record(b"b", timestamp_ms=cast("int", "no time"))]
        parts = [part("a"), broken, part("c")]
        outcomes = await asyncio.gather(
            *(batcher.append(ORDERS, (2,), each) for each in parts), return_exceptions=True
        )
        assert [isinstance(outcome, Exception) for outcome in outcomes] == [False, True, False]
        assert batches_of(cluster) == [[b"a"], [b"c"]]


async def test_what_befalls_the_batch_is_told_to_every_request() -> None:
    async with gathering() as (cluster, batcher):
        cluster.gateway.faults[TopicPartition(ORDERS, 0)] = NotEnoughReplicas("one is left")
        parts = [part("a"), part("b")]
        outcomes = await asyncio.gather(
            *(batcher.append(ORDERS, (0,), each) for each in parts), return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes] == [NotEnoughReplicas, NotEnoughReplicas]
        assert all(each.target == TopicPartition(ORDERS, 0) for each in parts)


async def test_what_was_asked_for_is_stored_though_nobody_waits() -> None:
    async with gathering() as (cluster, batcher):
        gone = asyncio.ensure_future(batcher.append(ORDERS, (0,), part("a")))
        stays = asyncio.ensure_future(batcher.append(ORDERS, (0,), part("b")))
        await asyncio.sleep(0)
        gone.cancel()
        assert (await stays).base_offset == Offset(1)
        assert batches_of(cluster) == [[b"a", b"b"]]


@pytest.mark.parametrize("path", ["/v1/topics/orders/records", "/v1/topics/orders/partitions/0/records"])
@served(partitions=1)
async def test_a_request_that_names_its_timeout_is_answered_within_it(server: HttpServer, path: str) -> None:
    server.cluster.gateway.append_delay_s = 0.3
    body = {"records": [{"value": 1}]}
    patient, hurried = await asyncio.gather(
        server.post(path, body), server.post(f"{path}?timeout=50ms", body)
    )
    assert patient.status == 200
    assert (hurried.status, hurried.code) == (504, "commit_unknown")


@served(partitions=1)
async def test_many_clients_at_once_share_batches_and_no_offset(server: HttpServer) -> None:
    sent = await asyncio.gather(
        *(server.post("/v1/topics/orders/records", {"records": [{"value": n}]}) for n in range(50))
    )
    offsets = [reply.json["records"][0]["offset"] for reply in sent]  # type: ignore[index]
    assert sorted(offsets) == list(range(50))
    batches = server.cluster.gateway.log(TopicPartition(ORDERS, 0)).batches
    assert len(batches) < 50
    stored = {r.offset: r.value for batch in batches for r in read_records(batch)}
    assert [stored[offset] for offset in offsets] == [str(n).encode() for n in range(50)]
