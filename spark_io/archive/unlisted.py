"""Removes files of an archive that no manifest lists, left over from killed tasks and compactions.

Decides: which files may be removed. Leaves to others: manifests (``catalogue``), removal (``storage``).

A file is removed if

- its name has the form of an archive's files, so foreign files are never touched;
- no manifest and no generation lists it, not even a replaced one: readers that began earlier still open the
  files of a replaced generation;
- files that count have all its offsets. So the files of a batch that is being archived stay, however long
  that takes, and files whose manifest was lost stay, too: an operator can restore the manifest;
- it is older than a grace time, which is longer than a compaction takes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from raftlog.types import TopicPartition
from spark_io.archive import catalogue
from spark_io.archive.entries import MANIFESTS, Catalogue
from spark_io.archive.storage import Storage
from spark_io.planning import Range

_TOPIC: Final = re.compile(r"topic=([^/]+)")
_PARTITION: Final = re.compile(r"partition=([0-9]+)")
_FILE: Final = re.compile(r"([0-9]{20})-([0-9]{20})-[0-9a-f]{8}\.parquet")


@dataclass(frozen=True, slots=True)
class Unlisted:
    """A file that no manifest lists. ``offsets`` is None for an unfinished file."""

    path: str
    offsets: Range | None
    age_s: float


def find_unlisted(storage: Storage, *, now_s: float) -> list[Unlisted]:
    """Find the files of an archive that no manifest lists.

    Raises ``ArchiveDamaged`` if a manifest cannot be read, since its files are unknown. Files are listed
    before manifests are read, so that a file that is committed meanwhile is found in its manifest.
    """
    files = [*_data_files(storage), *_unfinished(storage)]
    listed = catalogue.listed(storage)
    found = []
    for path, offsets in files:
        if path in listed:
            continue
        try:
            found.append(Unlisted(path, offsets, now_s - storage.modified_s(path)))
        except FileNotFoundError:
            continue  # its writer has finished or removed it
    return found


def removable(found: Collection[Unlisted], archived: Catalogue, grace_s: float) -> list[Unlisted]:
    """The unlisted files that may be removed, by the rules of this module."""
    return [one for one in found if one.age_s > grace_s and not _is_missed(one, archived)]


def remove(storage: Storage, files: Collection[Unlisted]) -> None:
    """Remove these files. A missing file is no error."""
    for one in files:
        storage.remove(one.path)


def _is_missed(one: Unlisted, archived: Catalogue) -> bool:
    """Whether a file has offsets that no file that counts has."""
    return one.offsets is not None and bool(archived.missing(one.offsets))


def _data_files(storage: Storage) -> Iterator[tuple[str, Range]]:
    for topic in storage.names(""):
        is_topic = _TOPIC.fullmatch(topic)
        for partition in storage.names(topic) if is_topic else ():
            is_partition = _PARTITION.fullmatch(partition)
            if is_topic is None or is_partition is None:
                continue
            target = TopicPartition(unquote(is_topic[1]), int(is_partition[1]))
            for name in storage.names(f"{topic}/{partition}"):
                if (is_file := _FILE.fullmatch(name)) is not None:
                    offsets = Range(target.topic, target.partition, int(is_file[1]), int(is_file[2]))
                    yield f"{topic}/{partition}/{name}", offsets


def _unfinished(storage: Storage) -> Iterator[tuple[str, None]]:
    folders = [MANIFESTS, *(f"{MANIFESTS}/{name}" for name in storage.names(MANIFESTS))]
    for topic in storage.names(""):
        if _TOPIC.fullmatch(topic):
            folders += [f"{topic}/{name}" for name in storage.names(topic) if _PARTITION.fullmatch(name)]
    for folder in folders:
        for name in storage.unfinished(folder):
            yield f"{folder}/{name}", None
