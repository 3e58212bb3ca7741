"""One broker's disk: bytes that a power loss may take, and syncs that take time.

Decides: how long a sync takes and when it happens within that time. Leaves to others: what a power
loss leaves (``FakeFilesystem``), and when one comes (``faults``).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import cast

from chaos.simulator.event_loop import SimulatedLoop
from raftlog.storage.filesystem import File
from raftlog.storage.held_files import HeldFiles
from raftlog.storage.log_storage import DiskWork
from raftlog.testing.fake_filesystem import FakeFilesystem, PowerLost


class SimulatedDisk(FakeFilesystem):
    """A fake filesystem that tells when the machine died in the midst of a change, and which directory went.

    With ``dies_after`` it dies when so many changes have been made in all its lives; with
    ``dies_writing``, part of a file's name, while such a file is written: nothing is synced any more.
    """

    def __init__(self, died: Callable[[], None], removed: Callable[[str], None]) -> None:
        super().__init__()
        self.held = HeldFiles(1)
        self.dies_after: int | None = None
        self.dies_writing: str | None = None
        self._died = died
        self._removed = removed

    def hold(self, file: File) -> bool:
        """Files of active segments are closed between their uses as soon as another one is used."""
        self.held.hold(file)
        return True

    def remove_tree(self, path: str) -> None:
        """Remove a directory, and say so."""
        self._removed(path)
        super().remove_tree(path)

    def rename(self, path: str, target: str) -> None:
        """Give a file or directory another name, and say that a directory is gone from where it was."""
        is_directory = bool(self.list_directory(path))
        super().rename(path, target)
        if is_directory:
            self._removed(path)

    def count_change(self) -> None:
        """One more change; when the machine dies at it, nothing else of it happens any more."""
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
        """A write begins."""
        super().take_room(growth_bytes, path)
        if self.dies_writing is not None and self.dies_writing in path:
            self.dies_writing, self.crash_after_changes = None, 0

    def restart(self) -> None:
        """Another life."""
        self.dies_writing = None
        super().restart()


class SyncQueue:
    """The syncs of one broker: ``Broker``'s ``run_syncs`` and its other work on threads."""

    def __init__(self, rng: random.Random, typical_s: float, now: Callable[[], float]) -> None:
        self._rng = rng
        self._typical_s = typical_s
        self._now = now  # of the world: the broker's own clock may be off by minutes in a long run
        self.slowness = 1.0
        self.stalled_until = 0.0
        self.on_synced: Callable[[], None] = lambda: None

    def latency(self) -> float:
        """How long the next one takes: mostly little, now and then much."""
        return self._typical_s * self.slowness * self._rng.expovariate(1.0)

    async def run(self, syncs: Sequence[DiskWork]) -> list[OSError | None]:
        """One round; each sync happens at one moment, and the round's end is learned later."""
        errors = []
        for sync in syncs:
            await asyncio.sleep(max(0.0, self.stalled_until - self._now()) + self.latency())
            with cast("SimulatedLoop", asyncio.get_running_loop()).on_a_thread():
                errors.append(_run_one(sync))
            self.on_synced()
        await asyncio.sleep(self.latency() / 4)
        return errors


def _run_one(sync: DiskWork) -> OSError | None:
    try:
        sync.run()
    except OSError as error:
        return error
    return None
