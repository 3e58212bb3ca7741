"""Topics that keep records until the groups that they name have consumed them, on real brokers."""

# requirement: A11

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from chaos.cluster import Cluster
from raftlog import Client, Consumer
from raftlog.records.builder import Record
from raftlog.wire.bodies import PartitionDescription
from tests.helpers.command_line import run
from tests.helpers.real_cluster import create_topic, eventually

pytestmark = pytest.mark.e2e

SEGMENT = 4_096
RECORDS = 60  # of 500 bytes: about eight in a segment


@pytest.fixture
def looking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three brokers that look at retention five times a second."""
    often = {"RAFTLOG_BROKER__TIMING__RETENTION_CHECK_INTERVAL_MS": "200"}
    with Cluster(tmp_path_factory.mktemp("consumed"), environment=often) as made:
        yield made


def test_segments_go_once_all_named_groups_and_queues_have_consumed_them(looking: Cluster) -> None:
    create_topic(looking.urls[0], "orders", segment_bytes=SEGMENT)
    with Client(",".join(looking.urls)) as client:
        client.topics.alter("orders", config={"retention.consumed.by": "mail,audit"})

        def described() -> PartitionDescription:
            return client.topics.partitions("orders")[0]

        def held_back_by(group: str, offset: int) -> PartitionDescription:
            return eventually(
                lambda: (
                    one
                    if ((one := described()).held_back_by, one.consumed_up_to) == (group, offset)
                    else None
                ),
                what=f"partition that {group} holds back at {offset}",
            )

        for number in range(RECORDS):
            client.send("orders", f"{number:0500}")
        assert held_back_by("audit", 0).log_start_offset == 0  # neither group exists
        client.groups.commit("mail", {("orders", 0): RECORDS})
        client.groups.commit("audit", {("orders", 0): 20})
        eventually(lambda: 8 <= described().log_start_offset <= 20, what="segments that go")
        held_back_by("audit", 20)

        def is_described() -> bool:
            """Whether the command says who holds it back. A new leader knows that after its first look."""
            shown = run(looking, "topic", "describe", "orders", "-o", "wide")[0].decode()
            assert "held_back_by" in shown
            return "audit" in shown

        eventually(is_described, what="the group that holds it back")
        looking.kill(looking.leader("orders", 0))
        made = client.producer(transactional_id="copy", transaction_timeout="10m")
        with made as producer, producer.transaction() as tx:
            tx.add_offsets("mail", {("orders", 0): RECORDS})  # neither counts yet nor hides what is committed
            client.groups.commit("audit", {("orders", 0): 21})
            held_back_by("audit", 21)
            tx.abort()
        queue = client.queue("orders", group="audit")

        def is_worked_off() -> bool:
            """Whether all is consumed. A second without a job may be one without a leader."""
            for job in queue.jobs(limit=10, idle="1s"):
                job.ack()
            return described().consumed_up_to >= RECORDS

        eventually(is_worked_off, what="a queue that is worked off")
        eventually(lambda: described().size_bytes <= 2 * SEGMENT, what="little on the disk")
        client.groups.delete("mail")
        assert held_back_by("mail", 0).high_watermark >= RECORDS
        client.topics.alter("orders", config={"retention.consumed.by": None})
        held_back_by("", -1)


MILLION = 1_000_000
BURST = 20_000  # of about 110 bytes on the disk: half a segment
LARGE_SEGMENT = 4 << 20


@contextmanager
def largest(folder: Path) -> Iterator[list[int]]:
    """The most bytes that the segments of all partitions of ``jobs`` have had, in a list of one number."""
    found, is_over = [0], threading.Event()

    def look() -> None:
        while not is_over.wait(0.02):
            with contextlib.suppress(FileNotFoundError):  # a segment that has just gone
                found[0] = max(found[0], sum(file.stat().st_size for file in folder.glob("jobs-*/*/*.log")))

    watching = threading.Thread(target=look)
    watching.start()
    try:
        yield found
    finally:
        is_over.set()
        watching.join()


def work_off(consumer: Consumer, first: int) -> int:
    """Take the records of one burst, and commit; returns the committed offset."""
    following, offset = first, 0
    for batch in consumer.batches():
        assert batch[0].value == b"%0100d" % following
        following += len(batch)
        offset = batch[-1].offset + 1
        if following == first + BURST:
            break
    consumer.commit()
    return offset


def is_consumed(client: Client, offset: int) -> bool:
    """Whether the broker knows that all records below are consumed."""
    return client.topics.partitions("jobs")[0].consumed_up_to == offset


@pytest.mark.slow
def test_a_queue_of_a_million_messages_takes_two_segments(tmp_path: Path) -> None:
    often = {"RAFTLOG_BROKER__TIMING__RETENTION_CHECK_INTERVAL_MS": "100"}
    with Cluster(tmp_path, brokers=1, environment=often) as cluster, Client(cluster.urls[0]) as client:
        config = {"retention.consumed.by": "workers", "segment.bytes": LARGE_SEGMENT}
        client.topics.create("jobs", replication_factor=1, config=config)
        with (
            largest(cluster.data_directory(1)) as most,
            client.producer("jobs", preset="throughput") as producer,
            client.consumer("workers", "jobs", preset="throughput") as consumer,
        ):
            for number in range(0, MILLION, BURST):
                producer.send_all([Record(b"%0100d" % each) for each in range(number, number + BURST)])
                producer.flush()
                offset = work_off(consumer, number)
                eventually(partial(is_consumed, client, offset), what="a broker that knows it")
            assert LARGE_SEGMENT < most[0] <= 2 * LARGE_SEGMENT
        left = client.topics.partitions("jobs")[0]
        assert left.high_watermark >= MILLION
        assert left.size_bytes <= 2 * LARGE_SEGMENT
