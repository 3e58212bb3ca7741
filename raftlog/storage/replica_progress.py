"""The last known progress of the replicas on this disk, by which a restored older folder is detected.

A folder that was restored from a backup has lost votes and acknowledgements, and its files agree with each
other. So the data directory has a note of each replica outside of the replica's folder: a term, a vote and an
entry that were durable in the folder. A log that lacks one of these is an older copy.

``<data>/replica_progress``, kept twice (``twin_file``), holds the notes by group. They are written at
intervals and when the broker stops. So a restored folder that lacks only what came after the last note is not
detected.

Decides: whether a log is behind its note. Leaves to others: when notes are written
(``raftlog.hosting.progress_keeper``), and the treatment of such a log (``raftlog.hosting.opener``).
"""

from __future__ import annotations

import logging
from collections.abc import Container, Mapping
from typing import Final

import msgspec

from raftlog.errors import LogCorrupt
from raftlog.storage import twin_file
from raftlog.storage.filesystem import Filesystem
from raftlog.storage.segmented_log import SegmentedLog
from raftlog.types import EntryId, GroupId, Index, NodeId, Term

_log = logging.getLogger("raftlog.storage")

PROGRESS_FILE: Final = "replica_progress"


class Progress(msgspec.Struct, frozen=True, array_like=True):
    """Durable state of a replica's log: a term and its vote, and a committed entry."""

    term: Term
    voted_for: NodeId | None
    entry: EntryId
    is_only: bool  # whether the replica is the group's only member

    def missing_in(self, log: SegmentedLog) -> str:
        """The part of this progress that a log lacks, as text for people; empty if the log lacks nothing."""
        state = log.durable_hard_state
        if state.term < self.term:
            return f"its log knows term {state.term}, but had term {self.term}"
        if state.term == self.term and self.voted_for not in (None, state.voted_for):
            return f"its log lacks the vote for broker {self.voted_for} in term {self.term}"
        if self.entry.index >= log.first_index - 1 and not log.holds(self.entry):
            entry = f"entry {self.entry.index} of term {self.entry.term}"
            return f"its log ends at {log.last_index}, but had {entry}"
        return ""


def progress_of(log: SegmentedLog, commit_index: Index, *, is_only: bool) -> Progress:
    """The progress of a log as it is on the disk now."""
    index = max(min(commit_index, log.durable_index), Index(log.first_index - 1))
    state = log.durable_hard_state
    return Progress(state.term, state.voted_for, EntryId(log.term_at(index), index), is_only)


class ReplicaProgress:
    """The notes of one data directory. ``open`` and ``keep`` wait for the disk."""

    def __init__(
        self, filesystem: Filesystem, data_directory: str, notes: Mapping[GroupId, Progress]
    ) -> None:
        self._filesystem = filesystem
        self._data_directory = data_directory
        self._notes = notes

    @classmethod
    def open(cls, filesystem: Filesystem, data_directory: str) -> ReplicaProgress:
        """Read the notes. Raises ``OSError``."""
        notes: Mapping[GroupId, Progress] | None = None
        try:
            notes = twin_file.load(filesystem, data_directory, PROGRESS_FILE, dict[GroupId, Progress])
        except LogCorrupt as error:
            _log.error("older copies of replicas cannot be detected at this start: %s", error)
        return cls(filesystem, data_directory, notes or {})

    def of(self, group: GroupId) -> Progress | None:
        """The newest note about the replica of a group; None without a note."""
        return self._notes.get(group)

    def keep(self, notes: Mapping[GroupId, Progress], held: Container[GroupId]) -> None:
        """Replace the notes of the groups in ``notes``; remove older notes of groups that are not in
        ``held``.

        Durable on return. On ``OSError`` no note has changed.
        """
        kept = {group: note for group, note in self._notes.items() if group in held} | dict(notes)
        if kept != self._notes:
            twin_file.keep(self._filesystem, self._data_directory, PROGRESS_FILE, kept)
            self._notes = kept
