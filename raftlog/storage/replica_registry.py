"""The replicas that this disk has held: they show whether a replica without files is new or has lost them.

Two small files in the data directory, each kept twice (``twin_file``): ``disk_id``, a random number, and
``replicas``, with the same number and the ids of all groups that were ever opened here. A group is added once
its folder is durable and before its replica sends its first message. So a registered replica without files
may have voted and acknowledged; an unregistered replica has not.

If either file is lost, or the two name different disks, the disk gets a new id: all other brokers then treat
it as an empty disk, and no missing replica counts as new.

Leaves to others: the consequences (``partitions.hosting.opener``, ``partitions.hosting.first_start``).
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable
from typing import Final, TypeVar

import msgspec

from raftlog.errors import LogCorrupt
from raftlog.storage import twin_file
from raftlog.storage.filesystem import Filesystem
from raftlog.types import GroupId

_log = logging.getLogger("raftlog.storage")

DISK_FILE: Final = "disk_id"
REPLICAS_FILE: Final = "replicas"

Value = TypeVar("Value")


class _Kept(msgspec.Struct, frozen=True):
    disk_id: str
    groups: list[GroupId]
    is_older_copy: bool = False


class ReplicaRegistry:
    """The registered replicas of one data directory. Methods that write wait for the disk; one at a time."""

    def __init__(
        self,
        filesystem: Filesystem,
        data_directory: str,
        disk_id: str,
        groups: Iterable[GroupId],
        *,
        is_older_copy: bool = False,
    ) -> None:
        self.disk_id = disk_id
        self._is_older_copy = is_older_copy
        self._filesystem = filesystem
        self._data_directory = data_directory
        self._groups = frozenset(groups)

    @classmethod
    def open(cls, filesystem: Filesystem, data_directory: str, rng: random.Random) -> ReplicaRegistry:
        """Read the two files; ``rng`` draws the id of a disk that has none. Raises ``OSError``."""
        filesystem.make_directories(data_directory)
        disk_id = _load(filesystem, data_directory, DISK_FILE, str)
        kept = _load(filesystem, data_directory, REPLICAS_FILE, _Kept)
        known = kept or _Kept("", [])
        registry = cls(
            filesystem, data_directory, known.disk_id, known.groups, is_older_copy=known.is_older_copy
        )
        if disk_id is None or known.disk_id != disk_id:
            registry._become_another_disk(rng)
        return registry

    def begin_again(self, rng: random.Random) -> None:
        """Give this disk, an older copy, a new id; no replica is registered under the new id.

        Raises ``OSError``.
        """
        self._groups, self._is_older_copy = frozenset(), True
        self._become_another_disk(rng)

    def _become_another_disk(self, rng: random.Random) -> None:
        self.disk_id = f"{rng.getrandbits(128):032x}"
        self._save()
        twin_file.keep(self._filesystem, self._data_directory, DISK_FILE, self.disk_id)

    @property
    def groups(self) -> frozenset[GroupId]:
        """The groups of all replicas that were ever opened on this disk."""
        return self._groups

    def has_held(self, group: GroupId) -> bool:
        """Whether a replica of this group was ever opened on this disk."""
        return group in self._groups

    def is_older_copy(self, group: GroupId) -> bool:
        """Whether files of this group, if there are any, come from an older copy of a disk."""
        return self._is_older_copy and group not in self._groups

    def add(self, groups: Iterable[GroupId]) -> None:
        """Register groups whose replicas are open on this disk. Durable on return.

        On ``OSError`` nothing changes.
        """
        self._replace(self._groups | frozenset(groups))

    def keep_only(self, groups: Iterable[GroupId]) -> None:
        """Forget all groups except these: the others are deleted, and their ids are never used again.

        Raises ``OSError``.
        """
        self._replace(self._groups & frozenset(groups))

    def _replace(self, groups: frozenset[GroupId]) -> None:
        if groups == self._groups:
            return
        before, self._groups = self._groups, groups
        try:
            self._save()
        except BaseException:  # also MemoryError: the groups in memory must be durable
            self._groups = before
            raise

    def _save(self) -> None:
        kept = _Kept(self.disk_id, sorted(self._groups), self._is_older_copy)
        twin_file.keep(self._filesystem, self._data_directory, REPLICAS_FILE, kept)


def _load(filesystem: Filesystem, data_directory: str, name: str, kind: type[Value]) -> Value | None:
    try:
        return twin_file.load(filesystem, data_directory, name, kind)
    except LogCorrupt as error:
        _log.error("this disk counts as a new one: %s", error)
        return None
