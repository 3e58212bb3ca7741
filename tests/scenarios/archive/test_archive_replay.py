"""Replays with a whole broker: each record once, whatever of a run is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from raftlog import Client
from raftlog.client.messages import Message
from raftlog.errors import InvalidRequest, RaftlogError
from raftlog.types import TopicPartition
from spark_io.archive import catalogue
from spark_io.archive.replaying import Progress, id_of, key_of, replay
from spark_io.archive.storage import DirectoryStorage
from spark_io.errors import ArchiveDamaged
from spark_io.planning import Range
from tests.helpers.archives import ORDERS, archived, file_of, rows
from tests.helpers.async_tests import in_real_time
from tests.helpers.whole_broker import Trouble, WholeBroker, whole_broker

ALL = Range("orders", 0, 0, 40)


class Job:
    """A job that replays 40 archived records into the topic ``orders`` of a broker."""

    def __init__(self, broker: WholeBroker, client: Client, folder: Path) -> None:
        self.broker = broker
        self.client = client
        self.folder = folder
        self.storage = DirectoryStorage(folder)
        many = [file_of(self.storage, range(10), TopicPartition("many", 2))]
        catalogue.commit(self.storage, "other", 1, many, lambda _: False)
        archived(self.storage, 1, (0, 25), (25, 40))
        client.topics.alter("orders", config={"message.timestamp.type": "CreateTime"})

    def run(
        self,
        wanted: Range = ALL,
        *,
        name: str = "j",
        rows_: int = 8,
        progress: Progress = lambda _at, _count: None,
        client: Client | None = None,
    ) -> int:
        """Replay in chunks of ``rows_``."""
        return replay(
            client or self.client,
            self.storage,
            catalogue.load(self.storage),
            wanted,
            into="orders",
            job=name,
            chunk_rows=rows_,
            progress=progress,
        )

    def visible(self) -> list[Message]:
        """To readers of committed records."""
        found: list[Message] = []
        partition, at = self.client.partition("orders", 0), 0
        while (chunk := partition.read(at)).next_offset > at:
            found += chunk.messages
            at = chunk.next_offset
        return found

    def originals(self) -> list[int]:
        """Their offsets in the archive."""
        return [int(dict(one.headers)["orig.offset"] or b"") for one in self.visible()]


def dies_at(end: int) -> Progress:
    """Ends a run behind the chunk that ends there."""

    def progress(at: int, _: int) -> None:
        if at == end:
            raise KeyboardInterrupt

    return progress


def with_job(test: Callable[[Job], None]) -> Callable[[Path], None]:
    """Run a test on a thread, beside a broker."""

    def in_folder(tmp_path: Path) -> None:
        async def run() -> None:
            async with whole_broker() as broker:

                def use() -> None:
                    with Client(broker.url) as client:
                        test(Job(broker, client, tmp_path))

                await asyncio.to_thread(use)

        in_real_time(run)()

    in_folder.__name__ = test.__name__
    return in_folder


# requirement: A8
@with_job
def test_records_return_as_they_were_with_their_origin(job: Job) -> None:
    assert job.run() == 40
    found = job.visible()
    for was, now in zip(rows(range(40)).to_pylist(), found, strict=True):
        assert (now.key, now.value, now.timestamp_ms) == (was["key"], was["value"], 1_000 + was["offset"])
        headers = [(one["key"], one["value"]) for one in was["headers"] or ()]
        origin = [("orig.topic", b"orders"), ("orig.partition", b"0"), ("orig.offset", b"%d" % was["offset"])]
        assert [*now.headers] == headers + origin


# requirement: A8 D3
@with_job
def test_a_job_goes_on_where_it_has_ended(job: Job) -> None:
    with pytest.raises(KeyboardInterrupt):
        job.run(progress=dies_at(16))
    assert job.originals() == [*range(16)]
    assert job.run(rows_=1_000) == 24, "with chunks of another size"
    assert job.originals() == [*range(40)]
    assert job.run() == 0
    assert job.run(Range("orders", 0, 10, 20), name="another") == 10
    assert job.originals() == [*range(40), *range(10, 20)]


# requirement: A8
@with_job
def test_a_job_keeps_its_first_offset(job: Job) -> None:
    assert job.run(Range("orders", 0, 20, 30)) == 10
    for start in (0, 25):
        with pytest.raises(InvalidRequest, match="job j begins at offset 20 of orders/0"):
            job.run(Range("orders", 0, start, 40))
    assert job.run(Range("orders", 0, 20, 40)) == 10, "its end may move"
    assert job.originals() == [*range(20, 40)]


# requirement: A8 D3
@with_job
def test_a_job_that_is_killed_before_its_first_chunk_goes_on(job: Job) -> None:
    file = job.folder / catalogue.load(job.storage).of(ORDERS)[0].path
    file.rename(job.folder / "elsewhere")
    with pytest.raises(ArchiveDamaged, match="is missing"):
        job.run()
    (job.folder / "elsewhere").rename(file)
    assert job.run() == 40
    assert job.originals() == [*range(40)]


# requirement: A8 D3
@pytest.mark.parametrize(
    ("request_", "trouble"),
    [
        ("prepare", Trouble.UNANSWERED),
        ("commit-batch", Trouble.LOST),
        ("commit-batch", Trouble.UNANSWERED),
        ("/records", Trouble.LOST),
    ],
)
def test_a_lost_request_loses_and_repeats_nothing(tmp_path: Path, request_: str, trouble: Trouble) -> None:
    @with_job
    def test(job: Job) -> None:
        job.run(Range("orders", 0, 0, 8))
        job.broker.trouble(request_, *[trouble] * 2)
        try:
            job.run()
        except RaftlogError:
            job.broker.troubles.clear()
            job.run()
        assert job.originals() == [*range(40)]

    test(tmp_path)


# requirement: A8 D3
@with_job
def test_what_a_killed_run_has_prepared_is_aborted_by_the_next(job: Job) -> None:
    asked = {"transactional_id": id_of(key_of("j", ALL, "orders")), "preset": "throughput"}
    with Client(job.broker.url) as dead, dead.producer("orders", **asked) as producer:
        transaction = producer.transaction().__enter__()
        transaction.send("from the dead run", partition=0)
        transaction.prepare()
    job.run()
    assert job.originals() == [*range(40)]


# requirement: A8 D3
@with_job
def test_an_earlier_run_that_goes_on_is_fenced(job: Job) -> None:
    def the_next_run_is_faster(_at: int, _count: int) -> None:
        with Client(job.broker.url) as other:
            job.run(rows_=5, client=other)

    with pytest.raises(RaftlogError) as error:
        job.run(progress=the_next_run_is_faster)
    assert error.value.is_definite
    assert job.originals() == [*range(40)]


# requirement: A8
@with_job
def test_what_cannot_be_replayed_is_refused_before_anything_is_sent(job: Job) -> None:
    with pytest.raises(ArchiveDamaged, match="offsets 40 to 49 of orders/0 are not in the archive"):
        job.run(Range("orders", 0, 30, 50))
    with pytest.raises(InvalidRequest, match="job is"):
        job.run(name="a b")
    with pytest.raises(InvalidRequest, match="has 2 partitions"):
        job.run(Range("many", 2, 0, 10))
    job.client.topics.alter("orders", config={"message.timestamp.type": None})
    with pytest.raises(InvalidRequest, match=r"message\.timestamp\.type=CreateTime"):
        job.run()
    assert job.visible() == []
