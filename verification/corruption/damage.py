"""Damages one file of a broker in one of several ways.

Decides: which bytes each kind of damage changes. Every kind can be applied to every file.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from partitions.hosting.applied_metadata import APPLIED_FILE
from raftlog.storage import twin_file
from raftlog.storage.disk_age import AGE_FILE
from raftlog.storage.replica_progress import PROGRESS_FILE
from raftlog.storage.replica_registry import DISK_FILE, REPLICAS_FILE
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.testing.segment_content import content_of
from verification.corruption.cluster import Image

KINDS: Final = (
    "bit flip",
    "truncated file",
    "missing file",
    "stale older copy",
    "swapped files",
    "zeroed page",
    "duplicated block",
)
CATEGORIES: Final = (
    "closed segment",
    "active segment",
    "index",
    "epochs",
    "hard state",
    "checkpoint",
    "members",
    "metadata log",
    "metadata hard state",
    "metadata checkpoint",
    "applied metadata",
    "disk id",
    "disk age",
    "replicas",
    "replica progress",
)
PAGE_BYTES: Final = 256  # for files of this size or less
KEPT_TWICE: Final = (APPLIED_FILE, DISK_FILE, REPLICAS_FILE, AGE_FILE, PROGRESS_FILE)

_NAMES: Final = {
    "epochs": "epochs",
    "hard_state.a": "hard state",
    "hard_state.b": "hard state",
    "snapshot": "checkpoint",
    "members": "members",
    **{name + ending: name.replace("_", " ") for name in KEPT_TWICE for ending in twin_file.ENDINGS},
}


@dataclass(frozen=True, slots=True)
class Damage:
    """One damage to a disk: the kind of damage and the damaged file."""

    category: str
    kind: str
    path: str
    detail: str

    def __str__(self) -> str:
        return f"{self.kind} of {self.category} {self.path}: {self.detail}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of one damage: detected, shown to be harmless for a reason, or missed."""

    damage: Damage
    is_detected: bool
    harmless: str | None

    @property
    def is_missed(self) -> bool:
        """True if the damage was neither detected nor shown to be harmless."""
        return not self.is_detected and self.harmless is None

    def __str__(self) -> str:
        if self.is_detected:
            return f"{self.damage}: detected"
        return f"{self.damage}: {'MISSED' if self.harmless is None else f'harmless, {self.harmless}'}"


def categories_of(image: Image) -> dict[str, list[str]]:
    """Return the files of one broker by category, as sorted lists."""
    found: dict[str, list[str]] = {}
    newest: dict[str, str] = {}
    for path in sorted(image):
        folder, _, name = path.rpartition("/")
        if name.endswith(".log"):
            newest[folder] = path
    for path in sorted(image):
        category = _category(path, newest)
        if category is not None:
            found.setdefault(category, []).append(path)
    return found


def _category(path: str, newest: dict[str, str]) -> str | None:
    folder, _, name = path.rpartition("/")
    is_metadata = "__cluster_metadata" in folder
    if name.endswith(".log"):
        if is_metadata:
            return "metadata log"
        return "active segment" if newest[folder] == path else "closed segment"
    if name.endswith(".index"):
        return "index"
    category = _NAMES.get(name)
    if category is None and name.endswith(".state"):
        category = "checkpoint"
    return f"metadata {category}" if is_metadata and category in ("hard state", "checkpoint") else category


def do_damage(
    disk: FakeFilesystem, older: Image, rng: random.Random, category: str, kind: str
) -> Damage | None:
    """Damage one file of a category; return None if this kind of damage would change none of its bytes."""
    image = disk.image()
    paths = categories_of(image).get(category, [])
    if not paths:
        return None
    path = rng.choice(paths)
    data = image[path]
    if kind == "swapped files":
        others = [other for other in paths if other != path and image[other] != data]
        if not others:
            return None
        other = rng.choice(others)
        disk.overwrite(path, image[other])
        disk.overwrite(other, data)
        return Damage(category, kind, path, f"with {other.rpartition('/')[2]}")
    if kind == "stale older copy":
        changed = [path for path in paths if path in older and older[path] != image[path]]
        if not changed:
            return None
        path = rng.choice(changed)
        disk.overwrite(path, older[path])
        return Damage(category, kind, path, f"{len(older[path])} bytes instead of {len(image[path])}")
    if kind == "missing file":
        disk.overwrite(path, None)
        return Damage(category, kind, path, f"{len(data)} bytes")
    content = content_of(data) if path.endswith(".log") else data  # the segment may be filled ahead
    changed_content, detail = _changed(content, kind, rng)
    if changed_content == content:
        return None
    disk.overwrite(path, changed_content + (b"" if kind == "truncated file" else data[len(content) :]))
    return Damage(category, kind, path, detail)


def _changed(data: bytes, kind: str, rng: random.Random) -> tuple[bytes, str]:
    if not data:
        return data, ""
    if kind == "bit flip":
        at, bit = rng.randrange(len(data)), rng.randrange(8)
        changed = bytearray(data)
        changed[at] ^= 1 << bit
        return bytes(changed), f"bit {bit} of byte {at} of {len(data)}"
    if kind == "truncated file":
        size = rng.choice((0, rng.randrange(len(data)), len(data) - 1))
        return data[:size], f"to {size} of {len(data)}"
    at = rng.randrange(0, len(data), PAGE_BYTES)
    length = min(PAGE_BYTES, len(data) - at)
    if kind == "zeroed page":
        return data[:at] + bytes(length) + data[at + length :], f"{at}..{at + length} of {len(data)}"
    source = rng.randrange(0, len(data), PAGE_BYTES)
    block = data[source : source + length]
    return data[:at] + block + data[at + len(block) :], f"{source} over {at}, {len(block)} of {len(data)}"
