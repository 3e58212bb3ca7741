"""States that are kept while others are on their way to a slow disk."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from raftlog.storage.state_files import StateFiles
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.types import EntryId, Index, Term

DIRECTORY = "/data/orders-0/Partition-0"
PATIENCE_S = 10.0


class HangingDisk(FakeFilesystem):
    """Writes no file until it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.make_directories(DIRECTORY)
        self.has_begun, self.may_go_on = threading.Event(), threading.Event()

    def replace_file(self, path: str, data: bytes) -> None:
        """Late."""
        self.has_begun.set()
        assert self.may_go_on.wait(PATIENCE_S)
        super().replace_file(path, data)


def at(index: int) -> EntryId:
    return EntryId(Term(1), Index(index))


def test_the_owner_of_a_log_does_not_wait_for_a_state_that_is_being_written() -> None:
    disk = HangingDisk()
    states = StateFiles(disk, DIRECTORY)
    states.keep(at(9), b"first")
    with ThreadPoolExecutor(2) as threads:

        def promptly(act: Callable[[], object]) -> object:
            return threads.submit(act).result(PATIENCE_S / 4)

        flushing = threads.submit(states.flush)
        try:
            assert disk.has_begun.wait(PATIENCE_S)
            assert states.has(Index(10))  # nobody makes the snapshot of the machine again
            promptly(lambda: states.keep(at(19), b"second"))
            promptly(lambda: states.keep(at(9), b"first, made again"))
            assert promptly(lambda: states.standing) == ()
        finally:
            disk.may_go_on.set()
        flushing.result(PATIENCE_S)
    assert not states.is_due
    assert states.standing == (10, 20)
    found = StateFiles(disk, DIRECTORY)
    assert (found.load(Index(10)), found.load(Index(20))) == (b"first, made again", b"second")


def test_a_state_that_finds_no_room_is_not_tried_again() -> None:
    disk = FakeFilesystem()
    disk.make_directories(DIRECTORY)
    states = StateFiles(disk, DIRECTORY)
    states.keep(at(9), b"first")
    disk.capacity_bytes = disk.used_bytes
    states.flush()
    assert not states.is_due
    assert not states.has(Index(10))
