"""Keeps deleted folders in the trash for a while, so that an operator can restore them.

Decides: how a folder gets into the trash, and when it is erased. Leaves to others: which folder is deleted,
and which metadata allows that (``replica_manager``, ``opener``).

An entry is ``<data>/trash/<time>-<why>/<topic>-<topic id>[/Partition-<n>]``. ``time`` is the time of the
deletion in milliseconds since 1970, increased if necessary so that the name is unique. One rename moves a
folder to the trash, so after a crash the folder is in its former place or in the trash.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
from collections.abc import Callable
from typing import Final

from raftlog.clock import TrustedClock
from raftlog.node.blocking import RunBlocking
from raftlog.storage.filesystem import Filesystem

_log = logging.getLogger("raftlog.partitions")

TRASH_FOLDER: Final = "trash"
DELAY_MS: Final = 3_600_000
LOOK_S: Final = 1.0

_ENTRY: Final = re.compile(r"([0-9]{1,15})-[a-z-]+")


class Trash:
    """The trash of one broker. An entry is erased after ``delay_ms``; on a full disk the oldest is erased at
    once.

    For an entry from an earlier process of the broker, the delay is measured by trusted time up to the start
    of this process, and by the monotonic clock after the start, so that setting a clock erases no entry
    early. Without trusted time, no such delay ends.
    """

    def __init__(
        self,
        filesystem: Filesystem,
        data_directory: str,
        clock: TrustedClock,
        run_blocking: RunBlocking,
        *,
        delay_ms: int = DELAY_MS,
        has_room: Callable[[], bool] = lambda: True,
    ) -> None:
        self.size_bytes = 0  # of all entries, at the last look
        self._filesystem = filesystem
        self._data_directory = data_directory
        self._directory = f"{data_directory}/{TRASH_FOLDER}"
        self._clock = clock
        self._run_blocking = run_blocking
        self._delay_ms = delay_ms
        self._has_room = has_room
        self._due: dict[str, float] = {}  # by the monotonic clock
        self._sizes: dict[str, int] = {}

    def put(self, folder: str, why: str) -> None:
        """Move a folder to the trash durably. Waits for the disk. Raises ``OSError``."""
        if not self._filesystem.exists(folder):
            return
        number = self._clock.wall_ms()
        while self._filesystem.exists(f"{self._directory}/{number}-{why}"):
            number += 1
        target = f"{self._directory}/{number}-{why}/{folder.removeprefix(self._data_directory + '/')}"
        parent = target.rpartition("/")[0]
        self._filesystem.make_directories(parent)
        self._filesystem.rename(folder, target)
        self._filesystem.sync_directory(parent)
        self._filesystem.sync_directory(folder.rpartition("/")[0])
        _log.warning("moved %s to the trash; to restore it, move it back from %s", folder, target)

    async def run(self) -> None:
        """Erase due entries periodically, until cancelled."""
        while True:
            try:
                await self.look()
            except OSError as error:
                _log.error("cannot erase entries of %s, will try again: %s", self._directory, error)
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Erase due entries, and the oldest entry if the disk has no room. Raises ``OSError``."""
        entries = await self._run_blocking(self._entries)
        now_s, trusted_ms = self._clock.monotonic(), self._clock.trusted_ms()
        for name, came_ms in entries.items():
            if name not in self._due and trusted_ms is not None:
                left_ms = min(max(self._delay_ms - (trusted_ms - came_ms), 0), self._delay_ms)
                self._due[name] = now_s + left_ms / 1000
            if name not in self._sizes:
                self._sizes[name] = await self._run_blocking(lambda: self._size(name))  # noqa: B023
        due = [name for name in entries if self._due.get(name, math.inf) <= now_s]
        if not due and entries and not self._has_room():
            due = list(entries)[:1]
            _log.warning("the disk has no room: erasing %s/%s early", self._directory, due[0])
        for name in due:
            await self._run_blocking(lambda: self._filesystem.remove_tree(f"{self._directory}/{name}"))  # noqa: B023
            _log.info("erased %s/%s", self._directory, name)
        for name in self._sizes.keys() - (entries.keys() - set(due)):
            del self._sizes[name]
            self._due.pop(name, None)
        self.size_bytes = sum(self._sizes.values())

    def _entries(self) -> dict[str, int]:
        """The time of deletion of each entry, by name, oldest first.

        Files whose names are no entries stay.
        """
        found = [(_ENTRY.fullmatch(name), name) for name in self._filesystem.list_directory(self._directory)]
        came = {name: int(match[1]) for match, name in found if match is not None}
        return dict(sorted(came.items(), key=lambda entry: (entry[1], entry[0])))

    def _size(self, name: str) -> int:
        return self._filesystem.tree_bytes(f"{self._directory}/{name}")
