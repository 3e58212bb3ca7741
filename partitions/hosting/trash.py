"""Folders that were given up stay in the trash for a while, so that an operator can take them back.

Decides: how a folder gets into the trash, and when it is removed for good. Leaves to others: which folder is
given up, and by which metadata (``replica_manager``, ``opener``).

``<data>/trash/<time>-<why>/<topic>-<topic id>[/Partition-<n>]``: the time, in milliseconds since 1970, makes
the name unique and says when. One rename brings a folder there: a crash leaves it at one of the two places.
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
    """One broker's. An entry goes ``delay_ms`` after it came, the oldest at once while the disk has no room.

    The delay of an entry that came in an earlier run of the broker is counted by trusted time up to the
    start, and by the monotonic clock from there, so that a clock that is set does not remove anything early.
    While no time is trusted, no delay ends.
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
        """Move a folder below the data directory here, durably. Waits for the disk; raises ``OSError``."""
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
        _log.warning("%s is in the trash: it can be taken back from %s", folder, target)

    async def run(self) -> None:
        """Remove what is due until cancelled."""
        while True:
            try:
                await self.look()
            except OSError as error:
                _log.error("%s could not be emptied, it is tried again: %s", self._directory, error)
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Remove what is due now; the oldest entry, too, while the disk has no room. Raises ``OSError``."""
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
            _log.warning("the disk has no room: %s/%s is removed early", self._directory, due[0])
        for name in due:
            await self._run_blocking(lambda: self._filesystem.remove_tree(f"{self._directory}/{name}"))  # noqa: B023
            _log.info("%s/%s was removed for good", self._directory, name)
        for name in self._sizes.keys() - (entries.keys() - set(due)):
            del self._sizes[name]
            self._due.pop(name, None)
        self.size_bytes = sum(self._sizes.values())

    def _entries(self) -> dict[str, int]:
        """When each came, the oldest first. What has another name is not ours, and stays."""
        found = [(_ENTRY.fullmatch(name), name) for name in self._filesystem.list_directory(self._directory)]
        came = {name: int(match[1]) for match, name in found if match is not None}
        return dict(sorted(came.items(), key=lambda entry: (entry[1], entry[0])))

    def _size(self, name: str) -> int:
        return self._filesystem.tree_bytes(f"{self._directory}/{name}")
