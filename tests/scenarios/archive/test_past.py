"""Reads below the log start beside a broker that has an archive: what the log gave, whatever was deleted."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from groups.ports import Extent, Place
from raftlog import Client, Consumer, Queue, aio
from raftlog.client.messages import Message
from raftlog.errors import ArchiveDamaged, ArchiveUnavailable, Conflict, OffsetOutOfRange
from raftlog.testing.waits import eventually
from spark_io.archive import catalogue
from spark_io.archive.fetching import ArchiveReader
from spark_io.archive.storage import DirectoryStorage
from spark_io.archive.writing import TopicWriter, write_options
from spark_io.discovery import batch_ranges, discover, offset_asked
from spark_io.options import SERVERS, read_options
from tests.helpers.archives import ORDERS, archived
from tests.helpers.async_tests import beside, in_real_time
from tests.helpers.command_line import invoke
from tests.helpers.whole_broker import send_numbers, whole_broker

# requirement: A8

JSON = "application/json"


class Gated(DirectoryStorage):
    """A directory that hangs while its ``gate`` is closed."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.gate = threading.Event()
        self.gate.set()

    def read(self, path: str) -> bytes:
        self.gate.wait(30)
        return super().read(path)


@dataclass
class Past:
    """A broker with two partitions of ``orders``, and an archive that it knows."""

    client: Client
    url: str
    storage: Gated
    folder: Path
    before: list[tuple[object, ...]] = field(default_factory=list)  # what the log gave

    def send(self, count: int) -> None:
        """Transactions of records with everything a record may have; each third is aborted."""
        with self.client.producer("orders", transactional_id="t") as producer:
            for first in range(0, count, 5):
                with producer.transaction() as transaction:
                    for number in range(first, first + 5):
                        headers = [("h", b"1"), ("h", None)] if number % 2 else None
                        key = f"k{number}" if number % 3 else None
                        transaction.send(f"v{number}", key=key, partition=0, headers=headers, tags=["paid"])
                    if first % 15 == 10:
                        transaction.abort()

    def archive(self, *, fails: bool = True) -> None:
        options = write_options(
            self.url, "orders", batch_records=20, batch_bytes=1 << 20, fails_on_loss=fails
        )
        [*TopicWriter(self.client, DirectoryStorage(self.folder), "orders", options).write()]

    def delete_before(self, offset: int) -> None:
        self.client.partitions.delete_before("orders", 0, offset)

    @property
    def log_start(self) -> int:
        return self.client.topics.partitions("orders")[0].log_start_offset

    def read(self, offset: int = 0) -> list[tuple[object, ...]]:
        """All messages from an offset on, read in small pieces."""
        found: list[tuple[object, ...]] = []
        partition, end = self.client.partition("orders", 0), self.client.partition("orders", 0).offset_at()
        while offset < end:
            chunk = partition.read(offset, max_bytes=300)
            assert chunk.next_offset > offset
            found += map(contents, chunk.messages)
            offset = chunk.next_offset
        return found


def contents(one: Message) -> tuple[object, ...]:
    return one.offset, one.timestamp_ms, one.timestamp_type, one.key, one.value, one.headers


@pytest.fixture
def it(tmp_path: Path) -> Iterator[Past]:
    storage = Gated(tmp_path)
    broker = whole_broker(2, archive=ArchiveReader(storage))
    with beside(broker) as found, Client(found.url) as client:
        try:
            yield Past(client, found.url, storage, tmp_path)
        finally:
            storage.gate.set()


def impatient(it: Past) -> Client:
    """A client that repeats no request for longer than 100 ms: for requests that cannot succeed."""
    return Client(it.url, retry_timeout="100ms")


def get(it: Past, path: str, accept: str = JSON) -> tuple[int, Mapping[str, str], bytes]:
    """The status, the headers and the body of a response."""
    request = urllib.request.Request(f"{it.url}/v1/topics/orders/{path}", headers={"Accept": accept})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read()


def over_http(it: Past) -> list[int]:
    """The offsets of JSON fetches from 0 on."""
    found, at, is_over = list[int](), 0, False
    while not is_over:
        status, headers, body = get(it, f"partitions/0/records?offset={at}&limit=7")
        answer = json.loads(body or b"{}")
        records = answer.get("records", [])
        found += [one["offset"] for one in records]
        assert (
            answer.get("archived", False)
            is (headers.get("Raftlog-Archived") == "true")
            is (at < it.log_start)
        )
        at = int(headers["Raftlog-Next-Offset"])
        is_over = status == 204 and at >= it.log_start
    return found


def by_group_over_http(it: Past) -> list[int]:
    """The offsets that a member gets in ten polls, each of which acknowledges the one before."""
    found, wanted = list[int](), {"topics": ["orders"], "wait": "200ms", "limit": 20}
    for _ in range(10):
        request = urllib.request.Request(
            f"{it.url}/v1/groups/h/members/m:poll", json.dumps(wanted).encode(), {"Content-Type": JSON}
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            polled = json.loads(answer.read())
        found += [one["offset"] for one in polled["records"]]
        wanted = {**wanted, "generation": polled["generation"], "ack": polled["positions"]}
    return found


def polled(it: Past) -> str:
    """The response to a poll of a new group that begins at offset 0 of both partitions."""
    positions = [{"topic": "orders", "partition": number, "offset": 0} for number in (0, 1)]
    wanted = {"topics": ["orders"], "wait": "0s", "positions": positions}
    request = urllib.request.Request(
        f"{it.url}/v1/groups/p/members/m:poll", json.dumps(wanted).encode(), {"Content-Type": JSON}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return str(answer.read())


def by_command(it: Past, start: str = "0") -> list[int]:
    output = invoke(
        it.url, "consume", "orders", "--partition", "0", "--from", start, "--format", "%o "
    ).output
    return [int(one) for one in output.split()]


def by_consumer(consumer: Consumer) -> list[int]:
    found = []
    with consumer:
        while (message := consumer.poll("1s")) is not None:
            found.append(message.offset)
    return found


READERS: Mapping[str, Callable[[Past], list[int]]] = {
    "JSON": over_http,
    "a group over HTTP": by_group_over_http,
    "consume --from 0": by_command,
    "consume --from beginning": lambda it: by_command(it, "beginning"),
    "assigned": lambda it: by_consumer(it.client.consumer(None, assign=[("orders", 0)])),
    "a new group": lambda it: by_consumer(it.client.consumer("g", ["orders"])),
    "since a time": lambda it: [
        one.offset for one in it.client.partition("orders", 0).read(datetime.fromtimestamp(1, UTC), limit=999)
    ],
}


@pytest.fixture
def trimmed(it: Past) -> Past:
    """Everything up to offset 50 is archived and deleted."""
    it.send(65)
    it.before = it.read()
    it.archive()
    it.delete_before(50)
    it.send(10)
    assert it.log_start == 50
    return it


def test_records_are_what_the_log_gave(trimmed: Past) -> None:
    assert trimmed.read()[: len(trimmed.before)] == trimmed.before


def test_every_reader_gets_each_record_once(trimmed: Past) -> None:
    expected = [one[0] for one in trimmed.read()]
    assert {name: read(trimmed) for name, read in READERS.items()} == dict.fromkeys(READERS, expected)


def test_a_group_goes_on_below_the_log_start_and_is_reset_to_the_archive(trimmed: Past) -> None:
    expected = [one[0] for one in trimmed.read()]
    with trimmed.client.consumer("g", ["orders"]) as consumer:
        begun = [consumer.poll("5s") for _ in range(10)]
    assert [one.offset for one in begun if one is not None] == expected[:10]
    assert by_consumer(trimmed.client.consumer("g", ["orders"])) == expected[10:]
    trimmed.client.groups.reset("g", "earliest")
    assert by_consumer(trimmed.client.consumer("g", ["orders"])) == expected


def test_spark_begins_where_the_log_begins(trimmed: Past) -> None:
    given = {SERVERS: trimmed.url, "subscribe": "orders", "startingOffsets": "earliest"}
    options = read_options(given, is_stream=False)
    bounds = discover(trimmed.client, options)
    ranges = batch_ranges(options, bounds, offset_asked(trimmed.client))
    assert [one.start for one in ranges if one.partition == 0] == [trimmed.log_start]


def test_a_position_is_of_the_archive_only_below_the_log(trimmed: Past) -> None:
    earliest = json.loads(get(trimmed, "partitions/0/offsets?at=earliest")[2])
    assert earliest == {"offset": 0, "timestamp": None, "archived_from": 0}
    assert json.loads(get(trimmed, "partitions/0/offsets?at=latest")[2])["archived_from"] is None
    whole = json.loads(get(trimmed, "partitions/0/records/3")[2])
    assert (whole["offset"], whole["value"]) == (3, trimmed.before[3][4].decode())
    gone = next(at for at in range(50) if at not in [one[0] for one in trimmed.before])
    assert get(trimmed, f"partitions/0/records/{gone}")[0] == 404, "an offset without a record"


def test_what_is_archived_and_deleted_in_a_moment_is_read(it: Past) -> None:
    for _ in range(4):
        it.send(20)
        it.archive()
        it.delete_before(it.client.partition("orders", 0).offset_at() - 3)
        assert by_command(it) == [one[0] for one in it.read()]
    assert len(it.read()) == 60


def test_offsets_that_no_file_has(it: Past) -> None:
    it.send(20)
    it.archive()
    it.send(20)
    lost = 33
    it.delete_before(lost)
    it.archive(fails=False)
    it.send(5)
    it.archive()
    files = catalogue.load(it.storage).of(ORDERS)
    end = files[-1].end
    hole = max(one.end for one in files if one.end < lost)
    it.delete_before(end)
    with pytest.raises(OffsetOutOfRange) as caught:
        it.client.partition("orders", 0).read(hole)
    assert caught.value.details["archived_from"] == lost
    assert (caught.value.details["start"], caught.value.nearest(hole)) == (end, lost)
    assert it.client.partition("orders", 0).offset_at("earliest") == lost, "from there nothing is missing"
    consumer = it.client.consumer(None, assign=[("orders", 0)])
    assert (first := consumer.poll("5s")) is not None
    assert first.offset == lost
    consumer.seek("orders", 0, 0)
    read = by_consumer(consumer)
    assert read == [one for one in range(end) if one in read]
    assert read[0] == 0
    assert next(one for one in read if one >= lost) == lost


def test_a_topic_that_was_created_again_is_not_read_from_the_archive_of_the_earlier_one(
    trimmed: Past,
) -> None:
    trimmed.client.topics.delete("orders")
    trimmed.client.topics.create("orders", partitions=2, replication_factor=1)
    trimmed.send(65)
    trimmed.delete_before(30)
    with pytest.raises(OffsetOutOfRange) as caught:
        trimmed.client.partition("orders", 0).read(0)
    assert caught.value.details["start"] == 30
    assert "archived_from" not in caught.value.details
    assert by_command(trimmed, "beginning")[0] >= 30


def test_an_archive_that_hangs_stops_no_read_of_the_log(trimmed: Past) -> None:
    trimmed.storage.gate.clear()
    partition = trimmed.client.partition("orders", 0)
    with impatient(trimmed) as client, pytest.raises(ArchiveUnavailable):
        client.partition("orders", 0).read(0)
    trimmed.client.send("orders", "in the log", partition=1)
    assert "in the log" in polled(trimmed)
    status, headers, body = get(trimmed, "partitions/0/records?offset=0")
    assert (status, json.loads(body)["code"]) == (503, ArchiveUnavailable.code), (
        "its thread has the only place"
    )
    assert headers["Retry-After"] == "1"
    assert len(partition.read(50)) > 0
    trimmed.storage.gate.set()
    assert by_command(trimmed) == [one[0] for one in trimmed.read()]


@pytest.mark.parametrize("is_missing", [True, False])
def test_a_damaged_file_ends_the_records_before_it(trimmed: Past, is_missing: bool) -> None:
    entry = catalogue.load(trimmed.storage).of(ORDERS)[1]
    path = trimmed.folder / entry.path
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path.unlink()
    if not is_missing:
        path.write_bytes(damaged)
    partition = trimmed.client.partition("orders", 0)
    chunk = partition.read(0)
    assert chunk.next_offset == entry.start
    with pytest.raises(ArchiveDamaged):
        partition.read(entry.start)
    assert partition.read(entry.end).next_offset > entry.end


def test_metrics_count_reads_of_the_archive(trimmed: Past) -> None:
    trimmed.read()
    with urllib.request.urlopen(f"{trimmed.url}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    values = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line[0] != "#"}
    below = [one for one in trimmed.before if one[0] < 50]
    assert values["raftlog_archived_read_records_total"] == len(below)
    assert values['raftlog_archived_reads_total{outcome="ok"}'] > 1
    assert values["raftlog_archived_read_bytes_total"] > 20 * len(below)


# requirement: C7
@in_real_time
async def test_what_groups_can_read_begins_where_the_archive_does(tmp_path: Path) -> None:
    storage = Gated(tmp_path)
    async with (
        whole_broker(2, archive=ArchiveReader(storage)) as whole,
        aio.Client(whole.url) as client,
    ):
        topics = whole.broker.groups.topics
        topic_id = str(topics.topic_id("orders"))
        trimmed, whole_log = Place("orders", topic_id, 0), Place("orders", topic_id, 1)
        await send_numbers(client, 9)
        archived(storage, 0, (2, 9), topic_id=topic_id)
        await client.partitions.delete_before("orders", 0, 6)
        storage.gate.clear()
        assert [*await topics.extents([trimmed, whole_log])] == [whole_log], "the archive does not answer"
        storage.gate.set()
        found = await topics.extents([trimmed, whole_log])
        assert found == {trimmed: Extent(2, await topics.end("orders", 0)), whole_log: Extent(0, 0)}
        await client.partitions.delete_before("orders", 0, 9)
        assert (await topics.extents([trimmed]))[trimmed] == Extent(2, await topics.end("orders", 0))
        assert (await topics.extent("orders", 0)).start == 9, "lags count records of the log"


def until_buried(queue: Queue) -> None:
    """Return once no dead job waits to be stored in the dead-letter topic."""
    eventually(lambda: not any(part.dead for part in queue.describe().partitions), what="the burial")


# requirement: A7
def test_a_dead_letter_stays_open_while_only_the_archive_has_its_record(it: Past) -> None:
    it.send(10)
    queue = it.client.queue("orders", group="crew")
    (job,) = queue.receive(wait="5s", max_deliveries=1)
    job.nack(reason="first")
    until_buried(queue)
    it.archive()
    it.delete_before(8)
    (letter,) = it.client.dead_letters.list("orders", "crew")
    assert letter.offset < 8
    with pytest.raises(Conflict, match="no longer in the topic"):
        it.client.dead_letters.redrive("orders", "crew", all=True)
    assert [one.reason for one in it.client.dead_letters.list("orders", "crew")] == ["first"]


# requirement: A7
@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_job_that_only_the_archive_has_is_not_delivered_and_stops_no_queue(
    it: Past, is_damaged: bool
) -> None:
    it.send(10)
    queue = it.client.queue("orders", group="crew")
    (job,) = queue.receive(wait="5s")
    job.nack()
    it.archive()
    it.delete_before(8)
    if is_damaged:
        (file,) = it.folder.rglob("*.parquet")
        file.write_bytes(file.read_bytes()[:-1])
    assert min(one.message.offset for one in queue.receive(limit=10, wait="5s")) >= 8
    (part, _) = queue.describe().partitions
    assert part.waiting == 0
