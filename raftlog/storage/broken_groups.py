"""Notes about groups whose replica on this broker has broken an invariant: the next start does not open them.

A note is the file ``<data>/broken/<group id>``, kept twice (``twin_file``), with the error and its time. It
is written before the process ends. An operator removes it, or it is removed with the replica's files. A note
counts even if both copies are damaged: its name contains the group id.

Leaves to others: which replicas are opened (``partitions.hosting.replica_manager``).
"""

from __future__ import annotations

import logging

import msgspec

from raftlog.clock import Clock
from raftlog.errors import LogCorrupt
from raftlog.storage import twin_file
from raftlog.storage.filesystem import Filesystem
from raftlog.types import GroupId

BROKEN_FOLDER = "broken"

_log = logging.getLogger("raftlog.storage")


class _Note(msgspec.Struct, frozen=True, array_like=True):
    error: str
    wall_ms: int


class BrokenGroups:
    """The notes of one broker, read at its start.

    ``reasons``: for each noted group, why it must not be opened.
    """

    def __init__(self, filesystem: Filesystem, data_directory: str, clock: Clock) -> None:
        self._filesystem = filesystem
        self._data_directory = data_directory
        self._clock = clock
        self.reasons: dict[GroupId, str] = {}
        for name in filesystem.list_directory(f"{data_directory}/{BROKEN_FOLDER}"):
            group, _, _ = name.partition(".")
            if group.isdecimal() and GroupId(int(group)) not in self.reasons:
                self.reasons[GroupId(int(group))] = self._reason(GroupId(int(group)))
        for broken, reason in self.reasons.items():
            _log.error("group %d is not opened: %s", broken, reason)

    def note(self, group: GroupId, error: BaseException) -> None:
        """Record durably that this group's replica is wrong; a failure is only logged, since the process ends
        next.
        """
        try:
            self._filesystem.make_directories(f"{self._data_directory}/{BROKEN_FOLDER}")
            note = _Note(f"{type(error).__name__}: {error}", self._clock.wall_ms())
            twin_file.keep(self._filesystem, self._data_directory, _name(group), note)
        except OSError as trouble:
            _log.error("cannot record that group %d has broken an invariant: %s", group, trouble)

    def forget(self, group: GroupId) -> None:
        """Remove the note of a group whose files were removed: a new replica is sound. Raises ``OSError``."""
        if self.reasons.pop(group, None) is not None:
            for ending in twin_file.ENDINGS:
                self._filesystem.remove(f"{self._data_directory}/{_name(group)}{ending}")
            self._filesystem.sync_directory(f"{self._data_directory}/{BROKEN_FOLDER}")

    def _reason(self, group: GroupId) -> str:
        try:
            note = twin_file.load(self._filesystem, self._data_directory, _name(group), _Note)
        except LogCorrupt as damage:
            return f"the replica here has broken an invariant; {damage}"
        if note is None:
            return ""
        return f"the replica here has broken an invariant, at {note.wall_ms} ms: {note.error}"


def _name(group: GroupId) -> str:
    return f"{BROKEN_FOLDER}/{group}"
