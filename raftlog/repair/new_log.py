"""Replaces a log that cannot be repaired with a leader's log, from the leader's log start.

Decides: in which order files are written and removed. Leaves to others: whose log is fetched, up to which
index, and why it may replace the old log (``raftlog.repair.repairer``).

First, the new log is fetched into files beside the old log, which stays unchanged meanwhile. Then:

slots      the log is *given up*: its durable end is above any log, so that the replica does not open
old log    removed, with all files beside it
new log    members, state, segments: each durable
slots      the new log's start, and its durable end

A crash before the first step leaves the old log; a crash between the slots leaves a log that was given up and
is fetched again; a crash after the last step leaves the new log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from raftlog.core.ready import HardState
from raftlog.repair.segment_writer import NewSegment, SegmentWriter
from raftlog.repair.verify import VerifyReport
from raftlog.storage.durable_state import DurableState
from raftlog.storage.epochs import EPOCHS_NAME, Epochs
from raftlog.storage.filesystem import Filesystem
from raftlog.storage.members import replace_members
from raftlog.storage.segment import INDEX_SUFFIX, LOG_SUFFIX
from raftlog.storage.segment_rewriter import JOINING_SUFFIX
from raftlog.storage.slots import DurableEnd, ReplicaState, given_up
from raftlog.storage.state_files import CHECKPOINT_NAME, STATE_SUFFIX, StateFiles
from raftlog.types import EntryId, Index, Term

SEGMENT_BYTES: Final = 128 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """The start of a log: the state after all entries before ``start``, and the members at that time."""

    start: Index
    before: Term  # of the entry just before ``start``
    members: bytes  # in the format of the members file
    state: bytes  # meaningless for a log that begins with its first entry

    @property
    def end(self) -> EntryId:
        """The id of the entry just before the log."""
        return EntryId(self.before, Index(self.start - 1))


class NewLog:
    """The files of the new log, beside the damaged log. Blocks; no file is in use before ``replace``."""

    def __init__(self, filesystem: Filesystem, directory: str, beginning: Beginning) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._beginning = beginning
        self._writers: list[SegmentWriter] = []

    @property
    def following(self) -> int:
        """The offset that the next batch must have."""
        return self._writers[-1].following if self._writers else self._beginning.start

    @property
    def term(self) -> int:
        """The term of the entry just before ``following``."""
        return self._writers[-1].term if self._writers else self._beginning.before

    def writer(self) -> SegmentWriter:
        """The writer of the next batches."""
        if not self._writers or self._writers[-1].size >= SEGMENT_BYTES:
            segment = NewSegment(self.following, ())
            self._writers.append(SegmentWriter(self._filesystem, self._directory, segment, self.term))
        return self._writers[-1]

    def abandon(self) -> None:
        """Remove the fetched files; the old log stays."""
        for writer in self._writers:
            writer.abandon()

    def replace(self, seen: VerifyReport, hard_state: HardState, term: Term) -> None:
        """Replace the damaged log, which ``seen`` describes, with the fetched log.

        ``term`` is the newest term in which the replica may have acknowledged an entry: after a crash during
        the replacement, the leader whose log is fetched again must not be of an earlier term.
        """
        begin, old = self._beginning, seen.state
        self._put_slots(hard_state, old.log_start, old.before, given_up(term))
        for name in self._filesystem.list_directory(self._directory):
            if name in (EPOCHS_NAME, CHECKPOINT_NAME) or name.endswith(
                (LOG_SUFFIX, INDEX_SUFFIX, STATE_SUFFIX, JOINING_SUFFIX)
            ):
                self._filesystem.remove(f"{self._directory}/{name}")
        self._filesystem.sync_directory(self._directory)
        replace_members(self._filesystem, self._directory, begin.members)
        if begin.start > 0:
            StateFiles(self._filesystem, self._directory).save(begin.end, begin.state)
        terms, last = Epochs(), self.following - 1
        for writer in self._writers:
            writer.finish()
            for entry in writer.terms.entries(begin.start):
                terms.note(entry.term, entry.index)
        self._put_slots(
            hard_state, begin.start, begin.before, terms.durable_end(begin.start, begin.before, last)
        )

    def _put_slots(self, hard_state: HardState, start: Index, before: Term, durable_end: DurableEnd) -> None:
        state = ReplicaState(hard_state, start, before, durable_end, Index(start - 1))
        DurableState.replace(self._filesystem, self._directory, state)
