"""The state machine's state beside its log: where segments begin, and as of the last checkpoint.

``<base>.state`` is the state that everything below a segment's base led to. It is kept as soon as that much
is applied, so that a log which begins at that segment, because older ones were deleted or because it was
received as a snapshot, never lacks what came before. ``snapshot`` is the checkpoint of a close or of much
that was applied within one segment.

Decides which of these files is read, and which is of no use any more. A damaged one is passed over as long
as an older one reaches the log. Leaves to others: when a state is kept (``applier``).
"""

from __future__ import annotations

import contextlib
import struct
import threading
from collections.abc import Iterator

from raftlog.errors import LogCorrupt
from raftlog.storage.filesystem import Filesystem
from raftlog.storage.sealed import seal, unseal
from raftlog.storage.segment import segment_path
from raftlog.types import Index

CHECKPOINT_NAME = "snapshot"
STATE_SUFFIX = ".state"
_MAGIC = b"RLC1"
_INDEX = struct.Struct(">q")


class StateFiles:
    """The states of one log. ``flush`` runs on the sync's thread, everything else on the owner's."""

    __slots__ = ("_directory", "_due", "_filesystem", "_lock", "_standing")

    def __init__(self, filesystem: Filesystem, directory: str) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._lock = threading.Lock()
        self._due: dict[Index, bytes] = {}  # not on the disk yet
        self._standing = {
            Index(int(name[: -len(STATE_SUFFIX)]))
            for name in filesystem.list_directory(directory)
            if name.endswith(STATE_SUFFIX)
        }

    @property
    def is_due(self) -> bool:
        """Whether ``flush`` has something to write."""
        return bool(self._due)

    @property
    def standing(self) -> tuple[Index, ...]:
        """Where the log may begin, as far as the disk has the state for it; rising."""
        with self._lock:
            return tuple(sorted(self._standing))

    def has(self, base: Index) -> bool:
        """Whether the state below ``base`` is kept, or will be with the next sync."""
        return base in self._standing or base in self._due

    def keep(self, base: Index, state: bytes) -> None:
        """Keep the state that everything below ``base`` led to, with the next sync if the disk has room."""
        with self._lock:
            self._due[base] = state

    def flush(self) -> None:
        """Write what is due. Where that fails, the log cannot begin there, and nothing else is lost."""
        with self._lock:
            while self._due:
                base, state = self._due.popitem()
                with contextlib.suppress(OSError):
                    self.save(base, state)

    def save(self, base: Index, state: bytes) -> None:
        """Write one now, durably."""
        self._filesystem.replace_file(self._path(base), _encode(Index(base - 1), state))
        self._standing.add(base)

    def load(self, base: Index) -> bytes | None:
        """The state below ``base``; None when it was not kept or is damaged."""
        try:
            found = _read(self._filesystem, self._path(base))
        except LogCorrupt:
            return None
        return found[1] if found is not None and found[0] == base - 1 else None

    def save_checkpoint(self, index: Index, state: bytes) -> None:
        """Replace the checkpoint, durably."""
        self._filesystem.replace_file(f"{self._directory}/{CHECKPOINT_NAME}", _encode(index, state))

    def newest(self, first: Index, last: Index) -> tuple[Index, bytes] | None:
        """The newest sound state as of an index from ``first - 1`` to ``last``.

        Raises ``LogCorrupt`` when there is none because one is damaged.
        """
        found: list[tuple[Index, bytes]] = []
        damage: LogCorrupt | None = None
        for path in self._paths(last):
            try:
                state = _read(self._filesystem, path)
            except LogCorrupt as error:
                damage = error
                continue
            if state is not None and first - 1 <= state[0] <= last:
                found.append(state)
                if path.endswith(STATE_SUFFIX):
                    break  # older ones are no better
        if not found and damage is not None:
            raise damage
        return max(found, key=lambda state: state[0], default=None)

    def remove_below(self, base: Index) -> None:
        """The log begins at ``base``: states below it are of no use. Durable with the directory."""
        with self._lock:
            for older in [known for known in self._standing if known < base]:
                self._filesystem.remove(self._path(older))
                self._standing.discard(older)
            self._due = {kept: state for kept, state in self._due.items() if kept >= base}

    def _paths(self, last: Index) -> Iterator[str]:
        yield f"{self._directory}/{CHECKPOINT_NAME}"
        for base in reversed(self.standing):
            if base - 1 <= last:
                yield self._path(base)

    def _path(self, base: Index) -> str:
        return segment_path(self._directory, base) + STATE_SUFFIX


def load_checkpoint(filesystem: Filesystem, directory: str) -> tuple[Index, bytes] | None:
    """The checkpoint alone, or None when there is none. Raises ``LogCorrupt`` when it is damaged."""
    return _read(filesystem, f"{directory}/{CHECKPOINT_NAME}")


def damaged_states(filesystem: Filesystem, directory: str) -> list[str]:
    """Names of checkpoint and states that are not as they were written."""
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
    return name == CHECKPOINT_NAME or found is None or found[0] == int(name[: -len(STATE_SUFFIX)]) - 1


def is_state_known(filesystem: Filesystem, directory: str, log_start: Index) -> bool:
    """Whether the log can be applied: from its first entry, or from a sound state that reaches its start."""
    if log_start == 0:
        return True
    try:
        return StateFiles(filesystem, directory).newest(log_start, Index(1 << 62)) is not None
    except LogCorrupt:
        return False


def _encode(index: Index, state: bytes) -> bytes:
    return seal(_MAGIC, _INDEX.pack(index) + state)


def _read(filesystem: Filesystem, path: str) -> tuple[Index, bytes] | None:
    try:
        data = filesystem.read_file(path)
    except FileNotFoundError:
        return None
    payload = unseal(_MAGIC, data)
    if payload is None or len(payload) < _INDEX.size:
        raise LogCorrupt(f"{path}: the checksum is wrong; its broker mends it from the other replicas")
    (index,) = _INDEX.unpack_from(payload)
    return Index(index), bytes(payload[_INDEX.size :])
