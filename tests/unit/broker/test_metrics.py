"""Metrics as a scrape sees them: requests, delayed messages, the delay of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Iterator
from itertools import count
from types import SimpleNamespace
from typing import TypeVar, cast

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from api.resources.metrics import Answered
from broker.coordinators.groups import BrokerGroups
from broker.metrics.delays import DelayedMetrics
from broker.metrics.exposition import PAUSE, SLICE_S, STEP, exposition
from broker.metrics.groups import GroupMetrics
from broker.metrics.partitions import BrokerMetrics
from broker.process.loop_delay import INTERVAL_S, LoopDelay, waited_for_processor_s
from broker.settings import TransactionSettings
from delayed.coordinator import DelayedCoordinator
from delayed.requests import PauseSchedule
from groups.coordinator import GroupCoordinator
from groups.lag_samples import LagSamples
from groups.requests import Commit, OffsetCommit
from partitions.routing.traffic import SPARE, Traffic
from raftlog.aio import Client
from raftlog.client.transaction import AsyncTransaction
from raftlog.hosting.known_topics import KnownTopics
from tests.helpers.decided_delays import add, create, new
from tests.helpers.http_server import HttpServer, served
from tests.helpers.instant_delays import Refusing, coordinator_of, instant_coordinator
from tests.helpers.instant_groups import InstantLog, NoJobs, TopicsOnly, are_open
from tests.helpers.profiled import opcodes_of
from tests.helpers.virtual_client import VirtualClient
from tests.helpers.virtual_time import VirtualClock, VirtualLoop, eventually
from tests.helpers.whole_broker import TOPIC, send_numbers, whole_broker

Result = TypeVar("Result")
SECONDS = "raftlog_http_request_seconds"
OF_READS = {"method": "GET", "route": "/v1/topics"}


def test_a_duration_counts_up_to_its_bound_and_all_above() -> None:
    answered, registry = Answered(), CollectorRegistry()
    registry.register(answered)
    for status, seconds in ((200, 0.0005), (200, 0.3), (404, 100.0)):
        answered.add("GET", "/v1/topics", status, seconds)
    answered.add("POST", "/v1/topics", 201, 0.2)

    def up_to(bound: str) -> float | None:
        return registry.get_sample_value(f"{SECONDS}_bucket", {**OF_READS, "le": bound})

    assert [up_to(bound) for bound in ("0.0005", "0.25", "0.5", "60.0", "+Inf")] == [1, 1, 2, 2, 3]
    assert registry.get_sample_value(f"{SECONDS}_count", OF_READS) == 3
    assert registry.get_sample_value(f"{SECONDS}_sum", OF_READS) == 100.3005
    counted = registry.get_sample_value("raftlog_http_requests_total", {**OF_READS, "status": "200"})
    assert counted == 2


def registry_of(*families: Metric) -> CollectorRegistry:
    class Families(Collector):
        def collect(self) -> Iterator[Metric]:
            yield from families

    registry = CollectorRegistry()
    registry.register(Families())
    return registry


async def text_of(registry: CollectorRegistry, step_s: float = 0.0) -> list[bytes]:
    """The pieces of a text, each look at the clock ``step_s`` after the one before."""
    clock = count(0.0, step_s)
    return [piece async for piece in exposition(registry, lambda: next(clock))]


async def test_the_text_in_slices_is_that_of_the_library() -> None:
    gauge = GaugeMetricFamily("odd", 'Text "quoted"\nand \\.', labels=["topic", "group"])
    gauge.add_metric(['a"\\\n', "ä-1"], float("inf"))
    gauge.add_metric(["b", ""], 12_345_678_901_234)
    registry = registry_of(gauge, GaugeMetricFamily("none", "No sample.", labels=["x"]))
    Counter("failures", "Failures.", registry=registry).inc()
    Histogram("took_seconds", "Time.", registry=registry).observe(0.3)
    assert b"".join(await text_of(registry, 0.001)) == generate_latest(registry)


async def test_a_slice_ends_when_its_time_is_over_and_the_loop_turns() -> None:
    """Peers take a broker that adds up ten thousand partitions at once for lost."""
    rows = GaugeMetricFamily("rows", "Rows.", labels=["row"])
    for row in range(50):
        rows.add_metric([str(row)], row)
    registry = registry_of(*[PAUSE] * 50, rows)
    pieces, turns = await turns_during(text_of(registry, SLICE_S / 10))
    assert 5 <= len(pieces) <= turns - 3
    assert b"".join(pieces) == generate_latest(registry_of(rows))


async def turns_during(work: Coroutine[object, object, list[bytes]]) -> tuple[list[bytes], int]:
    """The result, and how often the event loop turned meanwhile."""
    turns, working = 0, asyncio.create_task(work)
    while not working.done():
        await asyncio.sleep(0)
        turns += 1
    return working.result(), turns


@served(partitions=1)
async def test_a_scrape_is_one_whole_exposition_or_ends_early(server: HttpServer) -> None:
    reply = await server.get("/metrics")
    families = list(text_string_to_metric_families(reply.body.decode()))
    assert len({family.name for family in families}) == len(families) > 5

    class Failing(Collector):
        def collect(self) -> Iterator[Metric]:
            raise ValueError("no value")

    server.cluster.services.registry.register(Failing())
    with pytest.raises(aiohttp.ClientPayloadError):
        await server.get("/metrics")


async def test_a_group_that_is_deleted_during_a_scrape_does_not_end_it() -> None:
    async with whole_broker(partitions=1) as broker, aiohttp.ClientSession() as session:
        for group in "gh":
            offsets = {"offsets": [{"topic": TOPIC, "partition": 0, "offset": 0}]}
            async with session.put(f"{broker.url}/v1/groups/{group}/offsets", json=offsets) as reply:
                assert reply.status == 204
        named: list[str] = []
        for metric in GroupMetrics(broker.broker.groups, 100).collect():
            if metric.name == "raftlog_groups":
                async with session.delete(f"{broker.url}/v1/groups/g") as reply:
                    assert reply.status == 204
            named += [sample.labels["group"] for sample in metric.samples if "group" in sample.labels]
        assert {"g", "h"} == {*named}


# requirement: N2
async def test_groups_that_are_reported_one_by_one_are_looked_at_in_slices() -> None:
    groups = 8 * STEP
    clock, topics = VirtualClock(), TopicsOnly(KnownTopics({"orders": 1}))
    made = GroupCoordinator("__offsets/0", clock, topics, NoJobs(), are_open, offsets_retention_ms=1 << 40)
    made.leads(InstantLog(made))
    commit = OffsetCommit(topic="orders", topic_id="t1", partition=0, offset=7)
    for number in range(groups):
        await made.ask(Commit(group=f"g{number}", offsets=(commit,)), 1_000)
    led = SimpleNamespace(coordinators={0: made}, lags=LagSamples(topics, clock))
    collected, slices = GroupMetrics(cast("BrokerGroups", led), groups).collect(), [0]
    is_over = False

    def go_on() -> None:
        nonlocal is_over
        found = next(collected, None)
        is_over = found is None
        if found is PAUSE:
            slices.append(0)

    while not is_over:
        slices[-1] += opcodes_of(go_on)
    made.leads(None)
    assert 4 * max(slices) < sum(slices)


def reported(*coordinators: DelayedCoordinator) -> dict[str, float]:
    """The samples, by name and labels."""
    collector = DelayedMetrics(dict(enumerate(coordinators)), VirtualClock())
    found: dict[str, float] = {}
    for metric in collector.collect():
        for sample in metric.samples:
            labels = ",".join(sample.labels.values())
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


# requirement: A3
async def test_pending_delivered_and_late_messages_are_reported() -> None:
    assert reported()["raftlog_delayed_lateness_seconds_count"] == 0
    clock = VirtualClock()
    coordinator = instant_coordinator(clock)
    coordinator.leads(InstantLog(coordinator))
    await coordinator.ask(add(new(1, delay_ms=0), new(2, delay_ms=60_000)), 1_000)
    await coordinator.ask(create("s"), 1_000)
    await coordinator.ask(create("t"), 1_000)
    await coordinator.ask(PauseSchedule(id="t", is_paused=True), 1_000)
    await asyncio.sleep(1)
    found = reported(coordinator)
    assert found["raftlog_delayed_messages{pending}"] == 1
    assert found["raftlog_delayed_messages{due}"] == found["raftlog_delayed_messages{failed}"] == 0
    assert (found["raftlog_schedules{active}"], found["raftlog_schedules{paused}"]) == (1, 1)
    clock.shift_ms += 3_600_000
    await asyncio.sleep(2)
    found = reported(coordinator)
    assert found["raftlog_schedule_firings_total"] == 1 + 1, "the newest that was missed, and the last one"
    assert found["raftlog_schedule_misses_total"] == 1
    assert found["raftlog_delayed_lateness_seconds_count"] == 2 + 2
    assert found["raftlog_delayed_lateness_seconds_bucket{0.01}"] == 1
    assert found["raftlog_delayed_lateness_seconds_bucket{600.0}"] == 3, (
        "one waited for the clock for an hour"
    )
    assert found["raftlog_delayed_lateness_seconds_sum"] > 3_000
    coordinator.leads(None)
    assert reported(coordinator)["raftlog_delayed_messages{pending}"] == 0


# requirement: A3
async def test_messages_that_cannot_be_delivered_are_reported() -> None:
    stuck = coordinator_of(Refusing(is_too_large=False), VirtualClock(), DelayedCoordinator)
    broken = coordinator_of(Refusing(is_too_large=True), VirtualClock(), DelayedCoordinator)
    for coordinator in (stuck, broken):
        coordinator.leads(InstantLog(coordinator))
        await coordinator.ask(add(new(1, delay_ms=0), new(2, delay_ms=1)), 1_000)
    await asyncio.sleep(30)
    found = reported(stuck, broken)
    assert found["raftlog_delayed_messages{due}"] == 2
    assert found["raftlog_delayed_messages{failed}"] == found["raftlog_delayed_failures_total"] == 2
    assert found["raftlog_delayed_messages{pending}"] == 0
    assert found["raftlog_delayed_retries_total"] >= 3
    assert 29 <= found["raftlog_delayed_oldest_due_seconds"] <= 31
    for coordinator in (stuck, broken):
        coordinator.leads(None)


@pytest.mark.parametrize(
    ("waits_s", "blocked_s", "delay_above", "held_up_to"),
    [([0.0, 0.0, 0.0], 0.3, "0.25", {"0.1": 0}), ([0.0, 0.3, 0.3], 0.2, "0.1", {"0.001": 1})],
    ids=["callback", "no processor"],
)
async def test_a_delay_of_the_loop_is_held_time_unless_it_had_no_processor(
    monkeypatch: pytest.MonkeyPatch,
    waits_s: list[float],
    blocked_s: float,
    delay_above: str,
    held_up_to: dict[str, int],
) -> None:
    registry, waits = CollectorRegistry(), iter(waits_s)
    monkeypatch.setattr("broker.process.loop_delay.waited_for_processor_s", lambda: next(waits))

    def counted(bucket: str, what: str = "delay") -> float:
        return registry.get_sample_value(f"raftlog_event_loop_{what}_seconds_bucket", {"le": bucket}) or 0.0

    delay, loop = LoopDelay(registry), asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    await asyncio.sleep(0)
    loop.skip(INTERVAL_S + blocked_s)
    await eventually(lambda: counted("+Inf") != 0)
    delay.stop()
    assert (counted(delay_above), counted("+Inf", "held")) == (0, 1)
    assert {bucket: counted(bucket, "held") for bucket in held_up_to} == held_up_to


def test_the_system_tells_how_long_a_thread_waited() -> None:
    before = waited_for_processor_s()
    assert 0 <= before <= waited_for_processor_s()


async def test_bytes_syncs_and_elections_of_a_broker_are_counted() -> None:
    async with whole_broker() as found, Client(found.url) as client:
        registry = CollectorRegistry()
        registry.register(BrokerMetrics(found.broker))

        def shown(name: str, **labels: str) -> float:
            return registry.get_sample_value(f"raftlog_{name}", labels) or 0.0

        started, rounds = shown("elections_started_total"), shown("sync_round_seconds_count")
        assert started == shown("elections_won_total") == len(found.broker.host.groups)
        await send_numbers(client, 3)
        assert shown("sync_round_seconds_count") > rounds
        assert shown("records_in_total") == shown("topic_records_in_total", topic=TOPIC) == 3
        assert shown("bytes_in_total") == shown("topic_bytes_in_total", topic=TOPIC) > 3
        assert shown("bytes_out_total") == 0
        assert len((await client.partition(TOPIC, 0).read(0)).messages) == 3
        assert shown("topic_bytes_out_total", topic=TOPIC) == shown("topic_bytes_in_total", topic=TOPIC)
        assert shown("leaderless_partitions") == shown("under_replicated_partitions") == 0
        assert shown("active_controller") == 1


def test_counters_of_deleted_topics_are_dropped_in_the_end() -> None:
    traffic = Traffic(lambda: {"0"})
    for number in range(3 * SPARE):
        traffic.appended(str(number), 10, 1)
    assert "0" in traffic.topics
    assert len(traffic.topics) <= SPARE + 1
    assert traffic.all.bytes_in == 30 * SPARE


async def test_a_broker_that_takes_no_records_says_so() -> None:
    async with whole_broker() as found:
        broker, registry = found.broker, CollectorRegistry()
        registry.register(BrokerMetrics(broker))

        def shown() -> list[float | None]:
            return [registry.get_sample_value(f"raftlog_disk_{name}") for name in ("full", "reserve_bytes")]

        assert shown() == [0, broker.disk.reserve_bytes]
        broker.host.has_room = lambda: False
        assert shown() == [1, broker.disk.reserve_bytes]


SIZES = {
    "groups": "raftlog_group_state_bytes",
    "transactions": "raftlog_transaction_state_bytes",
    "keys": "raftlog_idempotency_key_bytes",
    "delayed": "raftlog_delayed_bytes",
    "jobs": "raftlog_queue_open_job_bytes",
    "producers": "raftlog_producers",
}


async def test_the_sizes_of_states_rise_and_fall_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transactions.decisions.SWEEP_MS", 500)
    brief = TransactionSettings.model_construct(partitions=1, id_retention_ms=3_000, key_retention_ms=3_000)
    monkeypatch.setattr("tests.helpers.whole_broker.TransactionSettings", lambda **_: brief)
    async with whole_broker(partitions=1) as found, VirtualClient(found.url) as client:
        registry = found.request_pipeline.services.registry

        def sizes() -> dict[str, float]:
            some = (metric for metric in registry.collect() if metric.name in SIZES.values())
            found = {sample.name: sample.value for metric in some for sample in metric.samples}
            return {name: found[metric] for name, metric in SIZES.items()}

        async def changes(work: Awaitable[Result], *, up: str = "", down: str = "") -> Result:
            before, result = sizes(), await work
            differences = {name: size - before[name] for name, size in sizes().items()}
            assert {name for name, more in differences.items() if more > 0} == {*up.split()}, differences
            assert {name for name, more in differences.items() if more < 0} == {*down.split()}, differences
            return result

        none = dict.fromkeys(SIZES, 0.0)
        assert sizes() == none
        await changes(client.send(TOPIC, "x"), up="producers")
        await changes(client.groups.commit("g", {(TOPIC, 0): 1}), up="groups")
        (job,) = await changes(client.queue(TOPIC).receive(), up="groups jobs")
        later = await changes(client.delayed.send(TOPIC, "y", delay="1h"), up="delayed")
        await changes(keyed(found.url, "order-1"), up="transactions keys producers")
        async with client.producer(TOPIC, transactional_id="copy-1", linger=0) as producer:
            transaction = producer.transaction()
            await changes(transaction.__aenter__(), up="transactions")
            await changes(stored(transaction), up="transactions producers")
            await changes(transaction.__aexit__(None, None, None), down="transactions")
        await changes(job.ack(), down="jobs")
        await changes(client.delayed.cancel(later.id), down="delayed")
        await changes(client.groups.delete("g"), down="groups")
        await client.queue(TOPIC).delete()
        await client.groups.delete(TOPIC)
        assert sizes()["groups"] == 0
        await changes(asyncio.sleep(5), down="keys transactions")
        await changes(client.topics.delete(TOPIC), down="producers")
        assert sizes() == none


async def stored(transaction: AsyncTransaction) -> None:
    """A record of a transaction."""
    await (await transaction.send("z"))


async def keyed(url: str, key: str) -> None:
    """A produce with an idempotency key."""
    records, sent = {"records": [{"value": "k"}]}, {"Idempotency-Key": key}
    path = f"{url}/v1/topics/{TOPIC}/records"
    async with (
        aiohttp.ClientSession() as session,
        session.post(path, json=records, headers=sent) as reply,
    ):
        assert reply.status == 200
