"""Notes of groups whose replica here has broken an invariant: the next start does not open them.

``<data>/broken/<group id>`` is kept twice (``twin_file``): what was raised, and when. It is written before
the process ends, and removed with the replica's files or by an operator. A note of which both copies are
damaged counts as well: its name says whose it is.

Decides nothing about what is opened (``partitions.hosting.replica_manager``).
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
    """One broker's notes, as they were when it started. ``reasons`` says why a group is not to be opened."""

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
        """Keep it durably that this group's replica is wrong. The process ends next, noted or not."""
        try:
            self._filesystem.make_directories(f"{self._data_directory}/{BROKEN_FOLDER}")
            note = _Note(f"{type(error).__name__}: {error}", self._clock.wall_ms())
            twin_file.keep(self._filesystem, self._data_directory, _name(group), note)
        except OSError as trouble:
            _log.error("that group %d is broken could not be noted: %s", group, trouble)

    def forget(self, group: GroupId) -> None:
        """The replica's files are gone; what comes in their place has broken nothing. Raises ``OSError``."""
        if self.reasons.pop(group, None) is not None:
            for ending in twin_file.ENDINGS:
                self._filesystem.remove(f"{self._data_directory}/{_name(group)}{ending}")
            self._filesystem.sync_directory(f"{self._data_directory}/{BROKEN_FOLDER}")

    def _reason(self, group: GroupId) -> str:
        try:
            note = twin_file.load(self._filesystem, self._data_directory, _name(group), _Note)
        except LogCorrupt as damage:
            return f"it has broken an invariant; {damage}"
        return "" if note is None else f"it has broken an invariant, at {note.wall_ms} ms: {note.error}"


def _name(group: GroupId) -> str:
    return f"{BROKEN_FOLDER}/{group}"
