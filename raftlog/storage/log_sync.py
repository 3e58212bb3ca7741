"""One flush of a segmented log, carried out on another thread.

Decides the order in which things reach the disk: hard state, names, batches, and only then what
says that they are there (the epochs file and the promise).
"""

from __future__ import annotations

import contextlib
import errno
from dataclasses import dataclass

from raftlog.storage.durable_state import DurableState
from raftlog.storage.epochs import EPOCHS_NAME
from raftlog.storage.filesystem import File, Filesystem
from raftlog.types import Index


@dataclass(slots=True)
class SyncFailure:
    """Shared by all syncs of a log: once one has failed, nobody knows what the disk holds."""

    happened: bool = False


class LogSync:
    """See ``Sync``. What it needs was copied when it was taken, so the log may go on meanwhile."""

    __slots__ = (
        "_directory",
        "_epochs",
        "_failure",
        "_files",
        "_filesystem",
        "_generation",
        "_names_changed",
        "_state",
        "commit_index",
        "covers",
        "is_finished",
        "missed_epochs",
    )

    def __init__(
        self,
        filesystem: Filesystem,
        directory: str,
        state: DurableState,
        failure: SyncFailure,
        files: list[File],
        covers: Index,
        commit_index: Index,
        *,
        names_changed: bool,
        epochs: bytes | None,
    ) -> None:
        self.covers = covers  # a truncation lowers it
        self.commit_index = commit_index
        self.missed_epochs = False
        self.is_finished = False
        self._filesystem = filesystem
        self._directory = directory
        self._state = state
        self._failure = failure
        self._generation = state.generation
        self._files = files
        self._names_changed = names_changed
        self._epochs = epochs

    def run(self) -> None:
        """Block until the disk has what was there when this was taken. An ``OSError`` is final."""
        if self._failure.happened:
            raise OSError(
                errno.EIO, "an earlier sync of this log failed; it is never tried again", self._directory
            )
        try:
            self._state.flush()
            if self._names_changed:
                self._filesystem.sync_directory(self._directory)
            for file in self._files:
                file.sync()
        except OSError:
            self._failure.happened = True
            raise
        self._note_success()

    def _note_success(self) -> None:
        # Both only make the next opening faster and surer, so that a full disk is no reason to stop.
        if self._files:
            with contextlib.suppress(OSError):
                self._state.raise_promise(self._generation, self.covers, self.commit_index)
        if self._epochs is not None:
            with self._state.unless_truncated(self._generation) as valid:
                if valid:
                    self._save_epochs(self._epochs)

    def _save_epochs(self, data: bytes) -> None:
        try:
            self._filesystem.replace_file(f"{self._directory}/{EPOCHS_NAME}", data)
        except OSError:
            self.missed_epochs = True
