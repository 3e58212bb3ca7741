"""The first offset of each term, in memory and in the file ``epochs``.

The log is the authority: every batch carries its leader epoch. With the file, opening a log need not read the
headers of closed segments; the file is written after those segments were synced. It is valid for the batches
below its offset ``covers``; the terms of later batches are read from their headers. A truncation that reaches
below ``covers`` first removes the file durably, so the file is always right about offsets below ``covers``.
It also holds the memberships below ``covers``, for the same reason and by the same rules.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from crc32c import crc32c

from raftlog.core.membership import MembershipEntry
from raftlog.storage.filesystem import Filesystem
from raftlog.storage.members import decode_entries, encode_entries
from raftlog.storage.sealed import seal, unseal
from raftlog.storage.slots import DurableEnd
from raftlog.types import EntryId, Index, Term

EPOCHS_NAME = "epochs"
_MAGIC = b"RLE2"
_HEAD = struct.Struct(">qi")
_ENTRY = struct.Struct(">qq")


class Epochs:
    """The first offset of each term, oldest first; ``before`` is the term of the deleted entries."""

    __slots__ = ("_digest", "_starts", "_terms")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._terms: list[int] = []
        self._digest: tuple[int, int] | None = None  # an index, and the digest of the terms from there on

    @property
    def last_term(self) -> int:
        """The newest term; -1 if there is none."""
        return self._terms[-1] if self._terms else -1

    def note(self, term: int, start: int) -> None:
        """Add a batch of ``term`` that begins at ``start``, after all others; known terms change nothing."""
        if not self._terms or self._terms[-1] < term:
            self._digest = None
            self._terms.append(term)
            self._starts.append(start)

    def clear(self) -> None:
        """Forget all terms: the log is empty, and its next entry need not follow the removed entries."""
        self._digest = None
        self._starts.clear()
        self._terms.clear()

    def truncate_suffix(self, first_removed: int) -> None:
        """Forget the terms that began at ``first_removed`` or later."""
        self._digest = None
        while self._starts and self._starts[-1] >= first_removed:
            self._starts.pop()
            self._terms.pop()

    def truncate_prefix(self, first_kept: int) -> None:
        """Forget the terms that ended before ``first_kept``."""
        whole = bisect_right(self._starts, first_kept) - 1
        if whole > 0:
            self._digest = None
            del self._starts[:whole]
            del self._terms[:whole]

    def term_at(self, index: int) -> int | None:
        """The term of the entry at ``index``; None for an index before the first entry."""
        at = bisect_right(self._starts, index) - 1
        return self._terms[at] if at >= 0 else None

    def entries(self, first_index: int) -> tuple[EntryId, ...]:
        """The first entry of each term at or above ``first_index``."""
        oldest = max(bisect_right(self._starts, first_index) - 1, 0)
        return tuple(
            EntryId(Term(term), Index(max(start, first_index)))
            for term, start in zip(self._terms[oldest:], self._starts[oldest:], strict=True)
        )

    def durable_end(self, first_index: int, before: int, last: int) -> DurableEnd:
        """The durable end of a log that begins at ``first_index`` and whose entries up to ``last`` are
        durable.

        ``before`` is the term of the entry just before the log.
        """
        if self._starts and max(self._starts[-1], first_index) <= last:
            if self._digest is None or self._digest[0] != first_index:
                self._digest = (first_index, _digest(self.entries(first_index)))
            return DurableEnd(EntryId(Term(self._terms[-1]), Index(last)), self._digest[1])
        entries = [entry for entry in self.entries(first_index) if entry.index <= last]
        term = entries[-1].term if entries else Term(before)
        return DurableEnd(EntryId(term, Index(last)), _digest(entries))

    def encode(self, covers: int, memberships: Sequence[MembershipEntry]) -> bytes:
        """Encode the content of the file ``epochs``: the terms and memberships below ``covers``."""
        pairs = [pair for pair in zip(self._terms, self._starts, strict=True) if pair[1] < covers]
        parts = [_HEAD.pack(covers, len(pairs)), *[_ENTRY.pack(*pair) for pair in pairs]]
        return seal(_MAGIC, b"".join([*parts, encode_entries(memberships)]))


def _digest(entries: Iterable[EntryId]) -> int:
    return crc32c(b"".join([_ENTRY.pack(entry.term, entry.index) for entry in entries]))


class LoadedEpochs(NamedTuple):
    """The content of the file ``epochs``; ``covers`` is -1 if the file is missing or damaged."""

    epochs: Epochs
    memberships: list[MembershipEntry]
    covers: int


def load_epochs(filesystem: Filesystem, directory: str) -> LoadedEpochs:
    """Read the file ``epochs``. The caller reads the terms from ``covers`` on from the batches."""
    epochs = Epochs()
    try:
        data = filesystem.read_file(f"{directory}/{EPOCHS_NAME}")
    except FileNotFoundError:
        return LoadedEpochs(epochs, [], -1)
    found = unseal(_MAGIC, data)
    if found is None:
        return LoadedEpochs(epochs, [], -1)
    covers, count = _HEAD.unpack_from(found)
    end = _HEAD.size + count * _ENTRY.size
    for term, start in _ENTRY.iter_unpack(found[_HEAD.size : end]):
        epochs.note(term, start)
    return LoadedEpochs(epochs, decode_entries(found[end:]), covers)
