"""One flush of a segmented log, carried out on another thread.

Decides the order in which data reaches the disk: first the membership before the log, hard state, file names
and batches, and only then the records that say what is durable (the epochs file and the durable end).
"""

from __future__ import annotations

import errno
import threading
from types import TracebackType

from raftlog.storage.durable_state import DurableState
from raftlog.storage.epochs import EPOCHS_NAME
from raftlog.storage.filesystem import File, Filesystem
from raftlog.storage.members import LogMembers
from raftlog.storage.slots import DurableEnd
from raftlog.storage.state_files import StateFiles
from raftlog.types import Index


class SyncFailure:
    """The failure flag and the lock of a log's disk work: after a failed sync the disk's content is unknown.

    Only one thread waits for the disk at a time: of two syncs of one file the system may report lost pages to
    only one.
    """

    __slots__ = ("_directory", "_turn", "happened")

    def __init__(self, directory: str) -> None:
        self.happened = False
        self._directory = directory
        self._turn = threading.Lock()

    def is_final(self) -> SyncFailure:
        """A ``with`` block that waits for the disk.

        After an ``OSError`` in one block, all later blocks raise an error.
        """
        return self

    def __enter__(self) -> None:
        self._turn.acquire()
        if self.happened:
            self._turn.release()
            message = "an earlier sync of this log failed, and syncs are not retried"
            raise OSError(errno.EIO, message, self._directory)

    def try_begin(self) -> bool:
        """Begin to wait for the disk unless another block waits for it or one has failed; return whether it
        began.

        If so, the caller must call ``end``.
        """
        if not self._turn.acquire(blocking=False):
            return False
        if self.happened:
            self._turn.release()
            return False
        return True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end(error)

    def end(self, error: BaseException | None) -> None:
        """End a wait for the disk; if ``error`` is an ``OSError``, all later waits fail."""
        if isinstance(error, OSError):
            self.happened = True
        self._turn.release()


class LogSync:
    """A ``Sync`` of a segmented log, which may change while the sync runs."""

    __slots__ = (
        "_directory",
        "_durable_end",
        "_epochs",
        "_failure",
        "_filesystem",
        "_generation",
        "_log_start",
        "_members",
        "_notes_end",
        "_state",
        "_states",
        "commit_index",
        "covers",
        "files",
        "is_finished",
        "missed_epochs",
        "names_changed",
    )

    def __init__(
        self,
        filesystem: Filesystem,
        directory: str,
        state: DurableState,
        members: LogMembers,
        states: StateFiles,
        failure: SyncFailure,
        files: list[File],
        durable_end: DurableEnd,
        log_start: Index,
        commit_index: Index,
        *,
        names_changed: bool,
        notes_end: bool,
        epochs: bytes | None,
    ) -> None:
        self.covers = durable_end.last.index  # lowered by a truncation
        self.commit_index = commit_index
        self.files = files
        self.names_changed = names_changed
        self.missed_epochs = False
        self.is_finished = False
        self._filesystem = filesystem
        self._directory = directory
        self._state = state
        self._failure = failure
        self._generation = state.generation
        self._members = members
        self._states = states
        self._notes_end = notes_end
        self._epochs = epochs
        self._durable_end = durable_end
        self._log_start = log_start

    def run(self) -> None:
        """Block until the disk has the state of the log when ``take_sync`` was called.

        An ``OSError`` is final.
        """
        with self._failure.is_final():
            if self._members.is_due:
                self._members.flush_if_room()
            has_voted = self._state.flush()
            if self.names_changed:
                self._filesystem.sync_directory(self._directory)
            for file in self.files:
                file.sync()
            self._note_success(has_voted=has_voted)

    def begin_alone(self) -> File | None:
        """The file whose own sync can replace ``run``; the caller must call ``end_alone`` after that sync.

        None if ``run`` has more to do, or would wait for another sync. Does not wait.
        """
        is_more = self.names_changed or self._notes_end or self._epochs is not None or len(self.files) != 1
        is_due = self._state.is_dirty or self._members.is_due or self._states.is_due
        if is_more or is_due or not self._failure.try_begin():
            return None
        return self.files[0]

    def end_alone(self, error: BaseException | None) -> None:
        """Release the disk after ``begin_alone``: the sync ran, failed, or was not begun."""
        self._failure.end(error)

    def _note_success(self, *, has_voted: bool) -> None:
        # Both writes only make the next opening faster and more certain, so a full disk is no failure here.
        if self._notes_end or has_voted:  # after this write, both slots hold the vote
            try:  # noqa: SIM105 - three calls for each sync
                self._state.raise_durable_end(
                    self._generation, self._log_start, self._durable_end, self.commit_index
                )
            except OSError:
                pass
        if self._states.is_due:
            self._states.flush()
        if self._epochs is not None:
            with self._state.unless_truncated(self._generation) as valid:
                if valid:
                    self._save_epochs(self._epochs)

    def _save_epochs(self, data: bytes) -> None:
        try:
            self._filesystem.replace_file(f"{self._directory}/{EPOCHS_NAME}", data)
        except OSError:
            self.missed_epochs = True
