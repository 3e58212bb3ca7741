"""Brokers with and without the setting of an archive, and reads that must not wait for it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest
from prometheus_client import CollectorRegistry

from broker.archived_reads import ArchivedReads, Found
from raftlog.errors import ArchiveUnavailable, Overloaded
from raftlog.extras import install_command
from raftlog.types import TopicPartition

# requirement: A8

TARGET = TopicPartition("orders", 0)


class FakeArchive:
    """Does ``work`` for each read."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work

    def find(self, target: TopicPartition, topic_id: str, log_start: int, since_ms: int | None) -> int | None:
        self._work()
        return 7

    def read(self, target: TopicPartition, topic_id: str, offset: int, end: int, bytes_max: int) -> Found:
        raise NotImplementedError

    def close_idle(self) -> bool:
        return False


def in_own_process(script: str) -> str:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_broker_without_the_setting_imports_neither_arrow_nor_the_archive() -> None:
    told = in_own_process(
        "import sys, api.server; print('pyarrow' in sys.modules, 'spark_io' in sys.modules)"
    )
    assert told.split() == ["False", "False"]


@pytest.mark.parametrize(
    ("missing", "location", "remedy"),
    [
        ("pyarrow", "/archive", install_command("archive")),
        ("fsspec", "s3://bucket/archive", "pip install fsspec"),
    ],
)
def test_a_missing_package_is_named(missing: str, location: str, remedy: str) -> None:
    told = in_own_process(
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from broker.archived_reads import open_archive\n"
        "from raftlog.errors import InvalidRequest\n"
        f"try: open_archive({location!r})\n"
        "except InvalidRequest as error: print(error, error.details['field'])"
    )
    assert missing in told
    assert remedy in told
    assert told.rstrip().endswith("archive.location")


def test_reads_that_hang_keep_their_places_and_end_with_errors_that_pass() -> None:
    gate = threading.Event()

    async def run() -> None:
        reads = ArchivedReads(FakeArchive(lambda: gate.wait(30) and None), 2, 0.05, CollectorRegistry())
        find = lambda: reads.find(TARGET, "t", 9, None)  # noqa: E731
        hung = await asyncio.gather(find(), find(), return_exceptions=True)
        assert [type(one) for one in hung] == [ArchiveUnavailable] * 2
        with pytest.raises(ArchiveUnavailable, match="maximum number of archive reads") as refused:
            await find()
        assert refused.value.retryable
        assert refused.value.details["retry_after_ms"] > 0
        gate.set()
        assert await find() == 7
        await reads.stop()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("raised", "expected"), [(PermissionError("denied"), ArchiveUnavailable), (MemoryError(), Overloaded)]
)
def test_what_the_storage_says_passes(raised: Exception, expected: type[Exception]) -> None:
    def fail() -> None:
        raise raised

    async def run() -> None:
        reads = ArchivedReads(FakeArchive(fail), 1, 5, CollectorRegistry())
        for _ in range(2):
            with pytest.raises(expected) as caught:
                await reads.find(TARGET, "t", 9, None)
            assert "denied" not in str(caught.value), "paths and addresses are for the broker's log"

    asyncio.run(run())
