"""Files with the state machine's state: at the start of segments, and at the last checkpoint.

``<base>.state`` is the state after all entries below a segment's base. It is kept as soon as these entries
are applied. So a log that begins at that segment, because older segments were deleted or because the log was
received as a snapshot, always has the state before its first entry. ``snapshot`` is the checkpoint: it is
written when the log is closed, and after many entries were applied in one segment.

Each state names its entry, by index and term: it counts only in a log that holds this entry. A state may
reach the disk before its entries: a majority's entries are applied before this disk has them.

Decides which of these files is read, and which is no longer needed. A damaged file is skipped as long as an
older file reaches the log. Leaves to others: when a state is kept (``applier``).
"""

from __future__ import annotations

import contextlib
import struct
import threading
from collections.abc import Callable, Iterator

from raftlog.errors import LogCorrupt
from raftlog.storage.filesystem import Buffer, Filesystem
from raftlog.storage.sealed import seal, unseal
from raftlog.storage.segment import segment_path
from raftlog.types import EntryId, Index, Term

CHECKPOINT_NAME = "snapshot"
STATE_SUFFIX = ".state"
_MAGIC = b"RLC2"
_AT = struct.Struct(">qq")  # index and term of the entry

Holds = Callable[[EntryId], bool]
"""A function that says whether a log holds an entry, or begins just after it."""


class StateFiles:
    """The state files of one log.

    ``flush`` runs on the sync's thread; methods for a ``LogChange`` run on that change's thread, one at a
    time. All other methods belong to the owner's thread, and do not wait for the disk.
    """

    __slots__ = ("_directory", "_due", "_filesystem", "_lock", "_standing")

    def __init__(self, filesystem: Filesystem, directory: str) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._lock = threading.Lock()
        self._due: dict[Index, tuple[EntryId, bytes]] = {}  # states that are not on the disk yet
        self._standing = {
            Index(int(name[: -len(STATE_SUFFIX)]))
            for name in filesystem.list_directory(directory)
            if name.endswith(STATE_SUFFIX)
        }

    @property
    def is_due(self) -> bool:
        """Whether ``flush`` has a state to write."""
        return bool(self._due)

    @property
    def standing(self) -> tuple[Index, ...]:
        """The offsets, in rising order, at which the log may begin because the state before each
        is durable.
        """
        with self._lock:
            return tuple(sorted(self._standing))

    def has(self, base: Index) -> bool:
        """Whether the state of all entries below ``base`` is durable, or will be written by the next sync."""
        return base in self._standing or base in self._due

    def keep(self, at: EntryId, state: bytes) -> None:
        """Keep the state after all entries up to ``at``; the next sync writes it if the disk has room."""
        with self._lock:
            self._due[Index(at.index + 1)] = at, state

    def flush(self) -> None:
        """Write the states that are due. A failure is ignored: the log then cannot begin at that state."""
        while (due := self._newest_due()) is not None:
            with contextlib.suppress(OSError):
                self.save(*due)
            with self._lock:
                base = Index(due[0].index + 1)
                if self._due.get(base) is due:  # else a newer state was kept meanwhile
                    del self._due[base]

    def _newest_due(self) -> tuple[EntryId, bytes] | None:
        with self._lock:
            return next(reversed(self._due.values()), None)

    def save(self, at: EntryId, state: bytes) -> None:
        """Write the state of one entry now, durably."""
        base = Index(at.index + 1)
        self._filesystem.replace_file(self._path(base), _encode(at, state))
        with self._lock:
            self._standing.add(base)

    def load(self, base: Index) -> bytes | None:
        """The state of all entries below ``base``; None if it was not kept or is damaged."""
        try:
            found = _read(self._filesystem, self._path(base))
        except LogCorrupt:
            return None
        return found[1] if found is not None and found[0].index == base - 1 else None

    def save_checkpoint(self, at: EntryId, state: bytes) -> None:
        """Replace the checkpoint durably with this state, of the entry ``at``."""
        self._filesystem.replace_file(f"{self._directory}/{CHECKPOINT_NAME}", _encode(at, state))

    def drop_unless(self, holds: Holds) -> None:
        """Remove sound states whose entries the log does not hold; ignore failures."""
        for base in self.standing:
            path = self._path(base)
            with contextlib.suppress(OSError, LogCorrupt):
                if not holds(_peek(self._filesystem, path)) and _read(self._filesystem, path) is not None:
                    self._filesystem.remove(path)
                    self._standing.discard(base)

    def newest(self, holds: Holds) -> tuple[Index, bytes] | None:
        """The newest sound state whose entry the log holds.

        Raises ``LogCorrupt`` if damage left no such state.
        """
        found: list[tuple[EntryId, bytes]] = []
        damage: LogCorrupt | None = None
        for path in self._paths():
            try:
                state = _read(self._filesystem, path)
            except LogCorrupt as error:
                damage = error
                continue
            if state is not None and holds(state[0]):
                found.append(state)
                if path.endswith(STATE_SUFFIX):
                    break  # older states are not better
        if not found and damage is not None:
            raise damage
        newest = max(found, key=lambda state: state[0].index, default=None)
        return None if newest is None else (newest[0].index, newest[1])

    def remove_below(self, base: Index, *, above: int = -1) -> None:
        """Remove the states below ``base``, except the states up to ``above``.

        Durable after a directory sync.
        """
        for older in [known for known in self.standing if above < known < base]:
            self._filesystem.remove(self._path(older))
            with self._lock:
                self._standing.discard(older)
        with self._lock:
            self._due = {kept: due for kept, due in self._due.items() if kept >= base}

    def remove_between(self, first: int, last: int) -> None:
        """Remove the states at offsets ``first..last``, where no segment begins.

        Durable after a directory sync.
        """
        for base in [known for known in self.standing if first <= known <= last]:
            self._filesystem.remove(self._path(base))
            with self._lock:
                self._standing.discard(base)
        with self._lock:
            self._due = {base: due for base, due in self._due.items() if not first <= base <= last}

    def remove_superseded(self, start: Index, end: Index) -> None:
        """Remove the states below ``end``, but not the state at the log's ``start``. Durable on return.

        Raises ``OSError``; some states may then be left.
        """
        checkpoint = f"{self._directory}/{CHECKPOINT_NAME}"
        self.remove_below(end, above=start)
        with contextlib.suppress(FileNotFoundError, LogCorrupt):  # a damaged checkpoint is never used
            if _peek(self._filesystem, checkpoint).index + 1 < end:
                self._filesystem.remove(checkpoint)
        self._filesystem.sync_directory(self._directory)

    def _paths(self) -> Iterator[str]:
        yield f"{self._directory}/{CHECKPOINT_NAME}"
        for base in reversed(self.standing):
            yield self._path(base)

    def _path(self, base: Index) -> str:
        return segment_path(self._directory, base) + STATE_SUFFIX


def load_checkpoint(filesystem: Filesystem, directory: str) -> tuple[EntryId, bytes] | None:
    """Read the checkpoint file; None if there is no such file. Raises ``LogCorrupt`` if it is damaged."""
    return _read(filesystem, f"{directory}/{CHECKPOINT_NAME}")


def damaged_states(filesystem: Filesystem, directory: str) -> list[str]:
    """The names of damaged files, among the checkpoint and the states."""
    return [
        name
        for name in filesystem.list_directory(directory)
        if (name == CHECKPOINT_NAME or name.endswith(STATE_SUFFIX))
        and not _is_sound(filesystem, directory, name)
    ]


def _is_sound(filesystem: Filesystem, directory: str, name: str) -> bool:
    try:
        found = _read(filesystem, f"{directory}/{name}")
    except LogCorrupt:
        return False
    return name == CHECKPOINT_NAME or found is None or found[0].index == int(name[: -len(STATE_SUFFIX)]) - 1


def is_state_known(filesystem: Filesystem, directory: str, log_start: Index) -> bool:
    """Whether the log can be applied: from its first entry, or from a sound state that reaches its start."""
    if log_start == 0:
        return True
    try:
        states = StateFiles(filesystem, directory)
        return states.newest(lambda at: at.index >= log_start - 1) is not None
    except LogCorrupt:
        return False


def _encode(at: EntryId, state: bytes) -> bytes:
    return seal(_MAGIC, _AT.pack(at.index, at.term), state)


def _peek(filesystem: Filesystem, path: str) -> EntryId:
    """The entry that a state file names, even if the file is damaged."""
    file = filesystem.open(path)
    try:
        return _entry(file.read_at(len(_MAGIC), _AT.size))
    finally:
        file.close()


def _entry(head: Buffer) -> EntryId:
    if len(head) < _AT.size:
        raise LogCorrupt("a state file is truncated in its head")
    index, term = _AT.unpack_from(head)
    return EntryId(Term(term), Index(index))


def _read(filesystem: Filesystem, path: str) -> tuple[EntryId, bytes] | None:
    try:
        data = filesystem.read_file(path)
    except FileNotFoundError:
        return None
    payload = unseal(_MAGIC, data)
    if payload is None or len(payload) < _AT.size:
        raise LogCorrupt(f"{path}: the checksum is wrong; its broker repairs it from the other replicas")
    return _entry(payload), bytes(payload[_AT.size :])
