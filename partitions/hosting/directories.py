"""Folders of a broker's replicas on its disk.

Decides: the names of folders, the mark in a recovered partition's folder, and which folders belong to deleted
topics. Leaves to others: when a replica may be deleted (``replica_manager``), the content of a folder
(``raftlog.storage``).

``<data>/<topic>-<topic id>/Partition-<n>/`` is one replica. Its file ``recovery`` holds the log number
(``PartitionInfo.log_number``): how many logs of partition ``n`` have ended by unsafe recoveries and removals;
without the file it is 0. ``recovery`` and ``disk_id`` have two copies each (``raftlog.storage.twin_file``).
"""

from __future__ import annotations

import logging
import re
from typing import Final

from partitions.hosting.applied_metadata import AppliedMetadata
from partitions.hosting.trash import Trash
from partitions.metadata.image import MetadataImage, TopicInfo
from raftlog.node.blocking import RunBlocking
from raftlog.storage import twin_file
from raftlog.storage.filesystem import Filesystem
from raftlog.types import TopicId

_log = logging.getLogger("raftlog.partitions")

RECOVERY_FILE: Final = "recovery"
FOLDER_NAME_MAX: Final = 255  # bytes; the limit of usual filesystems

_FOLDER: Final = re.compile(r"[A-Za-z0-9._-]+-([0-9a-f]{32})")
_PARTITION: Final = re.compile(r"Partition-([0-9]{1,5})")


class Folders:
    """The folders of one broker. The coroutines access the disk in a thread."""

    def __init__(
        self, filesystem: Filesystem, data_directory: str, run_blocking: RunBlocking, trash: Trash
    ) -> None:
        self._filesystem = filesystem
        self._data_directory = data_directory
        self._run_blocking = run_blocking
        self._trash = trash
        self._applied = AppliedMetadata(filesystem, data_directory)
        self._objection: str | None = None  # why the newest confirmed metadata may not delete folders
        self.is_swept = False  # whether all folders of unknown topics and partitions have been removed

    def of_topic(self, topic: TopicInfo) -> str:
        """The directory that has the partitions of a topic."""
        return f"{self._data_directory}/{folder_name(topic)}"

    def of_partition(self, topic: TopicInfo, partition: int) -> str:
        """The directory of the replica of a partition."""
        return f"{self.of_topic(topic)}/Partition-{partition}"

    async def make(self) -> None:
        """Make the broker's data directory."""
        await self._run_blocking(lambda: self._filesystem.make_directories(self._data_directory))

    async def partitions_in(self, topic: TopicInfo) -> list[int]:
        """The numbers of the partitions of a topic that have a folder on this broker."""
        names = await self._run_blocking(lambda: self._filesystem.list_directory(self.of_topic(topic)))
        found = (_PARTITION.fullmatch(name) for name in names)
        return [int(match[1]) for match in found if match is not None]

    def recovery_of(self, directory: str) -> int:
        """The log number of the log in ``directory``. Waits for the disk."""
        return twin_file.load(self._filesystem, *self._mark_of(directory), int) or 0

    def mark(self, directory: str, recovery: int) -> None:
        """Store the log number of the log in ``directory``. Waits for the disk."""
        if recovery:
            self._filesystem.make_directories(directory)
            twin_file.keep(self._filesystem, *self._mark_of(directory), recovery)

    def _mark_of(self, directory: str) -> tuple[str, str]:
        return self._data_directory, f"{directory.removeprefix(self._data_directory + '/')}/{RECOVERY_FILE}"

    async def give_up(self, folder: str, why: str) -> bool:
        """Move a topic's or a replica's folder to the trash; return whether metadata and disk allowed the
        move.

        After False, a later sweep moves the folder if the metadata does not have its topic or partition.
        """
        try:
            if self.may_give_up:
                await self._run_blocking(lambda: self.put_away(folder, why))
                return True
        except OSError as error:
            _log.error("cannot move %s to the trash, will try again: %s", folder, error)
        self.is_swept = False
        return False

    def put_away(self, folder: str, why: str) -> None:
        """Move a folder to the trash. Waits for the disk. Raises ``OSError``."""
        self._trash.put(folder, why)

    @property
    def may_give_up(self) -> bool:
        """Whether the metadata last passed to ``note`` may delete folders."""
        return self._objection == ""

    async def note(self, image: MetadataImage) -> None:
        """Store the version of confirmed metadata before this broker applies the metadata."""
        try:
            objection = await self._run_blocking(lambda: self._applied.objection(image))
        except OSError as error:
            objection = f"cannot store the version of the applied metadata: {error}"
        if objection and objection != self._objection:
            _log.error("this broker deletes no folder in %s: %s", self._data_directory, objection)
        self._objection = objection

    async def sweep(self, image: MetadataImage) -> None:
        """Move the folders of all topics and partitions that ``image`` does not have to the trash."""
        known = {topic.topic_id for topic in image.topics.values()}
        names = await self._run_blocking(lambda: self._filesystem.list_directory(self._data_directory))
        found = ((_FOLDER.fullmatch(name), name) for name in names)
        gone = [name for match, name in found if match is not None and TopicId(match[1]) not in known]
        self.is_swept = self.may_give_up
        for name in gone:
            await self.give_up(f"{self._data_directory}/{name}", "deleted")
        for topic in [topic for topic in image.topics.values() if topic.removed]:
            for number in await self.partitions_in(topic):
                if number >= len(topic.partitions):
                    await self.give_up(self.of_partition(topic, number), "removed")


def folder_name(topic: TopicInfo) -> str:
    """The folder name of a topic: its name, shortened if too long, and its id."""
    id_part = f"-{topic.topic_id}"
    return topic.name[: FOLDER_NAME_MAX - len(id_part)] + id_part
