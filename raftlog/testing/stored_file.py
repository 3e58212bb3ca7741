"""The content of a file of a ``FakeFilesystem``: as programs see it, on the disk, and after a power loss.

Decides: which unsynced changes survive a power loss. Leaves to others: names
(``fake_filesystem``).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

_SECTOR_BYTES = 512


@dataclass(slots=True)
class StoredFile:
    """One file: the bytes that programs see, the bytes on the disk, and the unsynced changes.

    ``seen_writes`` and ``disk_writes`` have the position of every change to the seen bytes and to the bytes
    on the disk, for code that watches a file from outside and continues where it stopped before.
    """

    seen: bytearray = field(default_factory=bytearray)
    disk: bytearray = field(default_factory=bytearray)
    unsynced: list[tuple[int, bytes | None]] = field(default_factory=list)  # None cuts at the position
    seen_writes: list[int] = field(default_factory=list)
    disk_writes: list[int] = field(default_factory=list)

    def write(self, position: int, data: bytes | None) -> None:
        """Change the bytes that programs see."""
        _apply(self.seen, position, data)
        self.unsynced.append((position, data))
        self.seen_writes.append(position)

    def sync(self) -> None:
        """Bring all unsynced changes to the disk."""
        for position, data in self.unsynced:
            _apply(self.disk, position, data)
            self.disk_writes.append(position)
        self.unsynced.clear()

    def lose_power(self, rng: random.Random) -> None:
        """Let the disk keep some unsynced changes; programs then see the content of the disk."""
        _tear(self, rng)


def _apply(content: bytearray, position: int, data: bytes | None) -> None:
    if len(content) < position:
        content.extend(bytes(position - len(content)))
    if data is None:
        del content[position:]
    else:
        content[position : position + len(data)] = data


def _tear(node: StoredFile, rng: random.Random) -> None:
    """Let the disk of ``node`` keep some unsynced changes, chosen at random."""
    manner = rng.choice(("all", "none", "prefix", "any", "last", "last"))
    kept = rng.randint(0, len(node.unsynced)) if manner == "prefix" else len(node.unsynced) - 1
    for at, (position, data) in enumerate(node.unsynced):
        whole = (
            manner == "all"
            or (manner in ("prefix", "last") and at < kept)
            or (manner == "any" and rng.random() < 0.5)
        )
        if whole:
            _apply(node.disk, position, data)
        elif manner == "any" or (manner in ("prefix", "last") and at == kept):
            _apply_part(node.disk, position, data, rng)
    node.seen = bytearray(node.disk)
    node.seen_writes.append(0)
    node.disk_writes.append(0)
    node.unsynced.clear()


def _apply_part(content: bytearray, position: int, data: bytes | None, rng: random.Random) -> None:
    if not data:
        return
    if len(data) <= _SECTOR_BYTES or rng.random() < 0.5:  # cut short
        _apply(content, position, data[: rng.randint(0, len(data))])
        return
    for start in range(0, len(data), _SECTOR_BYTES):  # some sectors only
        if rng.random() < 0.5:
            _apply(content, position + start, data[start : start + _SECTOR_BYTES])
