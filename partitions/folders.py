"""Where a broker's replicas lie on its disk, and which folders may go.

Decides: names of folders, what marks a recovered partition's folder, and which folders belong to topics
that are no more. Leaves to others: when a replica may be deleted (``manager``), what is in a folder
(``raftlog.storage``).

``<data>/<topic>-<topic id>/Partition-<n>/`` is one replica. The file ``recovery`` in it holds the number
of the unsafe recovery that its log has been through; without one it has been through none. It, ``disk_id``
and ``bootstrap_id`` are kept twice (``raftlog.storage.twin_file``).
"""

from __future__ import annotations

import logging
import re
from typing import Final

from partitions.blocking import RunBlocking
from partitions.controller.image import MetadataImage, TopicInfo
from raftlog.errors import LogCorrupt
from raftlog.storage import twin_file
from raftlog.storage.filesystem import Filesystem
from raftlog.types import TopicId

_log = logging.getLogger("raftlog.partitions")

BOOTSTRAP_FILE: Final = "bootstrap_id"
RECOVERY_FILE: Final = "recovery"
FOLDER_NAME_MAX: Final = 255  # bytes, on every usual filesystem

_FOLDER: Final = re.compile(r"[A-Za-z0-9._-]+-([0-9a-f]{32})")
_PARTITION: Final = re.compile(r"Partition-([0-9]{1,5})")


class Folders:
    """The folders of one broker. What waits for the disk is awaited."""

    def __init__(self, filesystem: Filesystem, data_directory: str, run_blocking: RunBlocking) -> None:
        self._filesystem = filesystem
        self._data_directory = data_directory
        self._run_blocking = run_blocking

    def of_topic(self, topic: TopicInfo) -> str:
        """Where a topic's partitions lie."""
        return f"{self._data_directory}/{folder_name(topic)}"

    def of_partition(self, topic: TopicInfo, partition: int) -> str:
        """Where one replica lies."""
        return f"{self.of_topic(topic)}/Partition-{partition}"

    async def make(self) -> None:
        """Make the broker's own folder."""
        await self._run_blocking(lambda: self._filesystem.make_directories(self._data_directory))

    async def partitions_in(self, topic: TopicInfo) -> list[int]:
        """The partitions of a topic that have a folder here."""
        names = await self._run_blocking(lambda: self._filesystem.list_directory(self.of_topic(topic)))
        found = (_PARTITION.fullmatch(name) for name in names)
        return [int(match[1]) for match in found if match is not None]

    def recovery_of(self, directory: str) -> int:
        """How many unsafe recoveries the log there has been through. Waits for the disk."""
        return twin_file.load(self._filesystem, *self._mark_of(directory), int) or 0

    def mark(self, directory: str, recovery: int) -> None:
        """Note the recovery that the log there has been through. Waits for the disk."""
        if recovery:
            self._filesystem.make_directories(directory)
            twin_file.keep(self._filesystem, *self._mark_of(directory), recovery)

    def _mark_of(self, directory: str) -> tuple[str, str]:
        return self._data_directory, f"{directory.removeprefix(self._data_directory + '/')}/{RECOVERY_FILE}"

    async def remove(self, folder: str) -> bool:
        """Remove a topic's folder, or a replica's; whether the disk let it."""

        def remove() -> None:
            self._filesystem.remove_tree(folder)
            self._filesystem.sync_directory(folder.rpartition("/")[0])

        try:
            await self._run_blocking(remove)
        except OSError as error:
            _log.error("%s could not be removed, it is tried again later: %s", folder, error)
            return False
        return True

    async def remove_leftovers(self, image: MetadataImage) -> bool:
        """Remove folders of topics that are no more. ``image`` has been confirmed to be current.

        False when the disk would not let it, as a full one does: it is tried again.
        """
        try:
            is_ours = await self._run_blocking(lambda: self._is_same_bootstrap(image.bootstrap_id))
        except OSError as error:
            _log.error("%s cannot be swept yet: %s", self._data_directory, error)
            return False
        except LogCorrupt as error:
            _log.error(
                "no folder is removed from %s, for nobody knows whose they are: %s",
                self._data_directory,
                error,
            )
            return True
        if not is_ours:
            _log.error("the folders in %s belong to other metadata: none is removed", self._data_directory)
            return True
        known = {topic.topic_id for topic in image.topics.values()}
        for name in await self._run_blocking(lambda: self._filesystem.list_directory(self._data_directory)):
            found = _FOLDER.fullmatch(name)
            if found is not None and TopicId(found[1]) not in known:
                _log.info("removing %s: its topic was deleted", name)
                await self.remove(f"{self._data_directory}/{name}")
        return True

    def _is_same_bootstrap(self, bootstrap_id: str) -> bool:
        known = twin_file.load(self._filesystem, self._data_directory, BOOTSTRAP_FILE, str)
        if known is None:
            twin_file.keep(self._filesystem, self._data_directory, BOOTSTRAP_FILE, bootstrap_id)
        return known in (None, bootstrap_id)


def folder_name(topic: TopicInfo) -> str:
    """The topic's name, as much of it as a folder may have, and its id."""
    id_part = f"-{topic.topic_id}"
    return topic.name[: FOLDER_NAME_MAX - len(id_part)] + id_part
