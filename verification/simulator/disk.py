"""Simulates one broker's disk: a power loss may remove bytes that are not synced, and syncs take time.

Decides: how long a sync takes and when it happens within that time. Leaves to others: the state after a power
loss (``FakeFilesystem``), and when a power loss happens (``faults``).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import cast

from raftlog.storage.filesystem import File
from raftlog.storage.held_files import HeldFiles
from raftlog.storage.log_storage import DiskWork
from raftlog.storage.log_sync import LogSync
from raftlog.testing.fake_filesystem import FakeFilesystem, PowerLost
from verification.simulator.event_loop import SimulatedLoop


class SimulatedDisk(FakeFilesystem):
    """A fake filesystem that can crash its machine during a change, and reports removed directories.

    With ``dies_after`` the machine crashes after so many changes, counted over all incarnations. With
    ``dies_writing`` it crashes during a write to a file whose name contains this text; nothing is synced
    after that.
    """

    def __init__(self, died: Callable[[], None], removed: Callable[[str], None]) -> None:
        super().__init__()
        self.held = HeldFiles(1)
        self.dies_after: int | None = None
        self.dies_writing: str | None = None
        self._died = died
        self._removed = removed

    def hold(self, file: File) -> bool:
        """Take over the closing of an active segment's file: it is closed as soon as another file is used."""
        self.held.hold(file)
        return True

    def remove_tree(self, path: str) -> None:
        """Remove a directory, and report it."""
        self._removed(path)
        super().remove_tree(path)

    def rename(self, path: str, target: str) -> None:
        """Rename a file or directory; report to the machine that a directory has left its path."""
        is_directory = bool(self.list_directory(path))
        super().rename(path, target)
        if is_directory:
            self._removed(path)

    def count_change(self) -> None:
        """Count a change. When the machine crashes at the change, the rest of the change does not happen."""
        if self.changes == self.dies_after:
            self.dies_after = None
            self._died()
            raise PowerLost
        try:
            super().count_change()
        except PowerLost:
            self._died()
            raise

    def take_room(self, growth_bytes: int, path: str) -> None:
        """Note that a write to a file begins; the machine may crash during it."""
        super().take_room(growth_bytes, path)
        if self.dies_writing is not None and self.dies_writing in path:
            self.dies_writing, self.crash_after_changes = None, 0

    def restart(self) -> None:
        """Prepare the disk for the next process of the broker."""
        self.dies_writing = None
        super().restart()


class SyncQueue:
    """The syncs of one broker, in place of ``Broker``'s ``run_syncs`` and its other work on threads."""

    def __init__(self, rng: random.Random, typical_s: float, now: Callable[[], float]) -> None:
        self._rng = rng
        self._typical_s = typical_s
        self._now = now  # true time: the broker's own clock may be off by minutes in a long run
        self.slowness = 1.0
        self.stalled_until = 0.0
        self.on_synced: Callable[[], None] = lambda: None

    def latency(self) -> float:
        """Draw the duration of the next sync in seconds: mostly short, sometimes long."""
        return self._typical_s * self.slowness * self._rng.expovariate(1.0)

    async def run(self, syncs: Sequence[DiskWork]) -> list[OSError | None]:
        """Run a number of syncs together. Each sync happens at a random moment; all are reported as complete
        at the end.
        """
        errors = []
        for sync in syncs:
            await asyncio.sleep(max(0.0, self.stalled_until - self._now()) + self.latency())
            with cast("SimulatedLoop", asyncio.get_running_loop()).on_a_thread():
                errors.append(_run_one(sync))
            self.on_synced()
        await asyncio.sleep(self.latency() / 4)
        return errors


def run_work(work: DiskWork) -> None:
    """Run a function as brokers on Linux do, where a sync of a single file can run alone. Raises
    ``OSError``.
    """
    if not isinstance(work, LogSync) or (file := work.begin_alone()) is None:
        work.run()
        return
    failure: BaseException | None = None
    try:
        file.sync()
    except BaseException as error:
        failure = error
        raise
    finally:
        work.end_alone(failure)


def _run_one(work: DiskWork) -> OSError | None:
    try:
        run_work(work)
    except OSError as error:
        return error
    return None
