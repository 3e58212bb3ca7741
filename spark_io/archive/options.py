"""Checks the options of the format ``raftlog-archive``, like the options of ``raftlog``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_io.archive.delta import check_installed
from spark_io.errors import InvalidOption
from spark_io.options import SERVERS, Given

_PLACE = "write the address of the archive in it, such as /mnt/archive or s3://bucket/prefix"


@dataclass(frozen=True, slots=True)
class ArchiveWriteOptions:
    """The options of a stream.

    ``servers`` are brokers to ask about gaps between files; None to ask no broker.
    """

    address: str
    servers: tuple[str, ...] | None
    is_delta: bool = False


@dataclass(frozen=True, slots=True)
class ArchiveReadOptions:
    """The options of a batch read. A field that is None restricts nothing."""

    address: str
    topics: frozenset[str] | None
    partitions: frozenset[int] | None
    start: int | None
    end: int | None
    max_records_per_partition: int | None


def archive_write_options(options: Mapping[str, str]) -> ArchiveWriteOptions:
    """Parse the options of a stream. Raises ``InvalidOption``."""
    given = Given(options, ("path", SERVERS, "layout"), {})
    is_delta = given.choice("layout", "manifest", "delta") == "delta"
    if is_delta:
        check_installed()
    servers = given.servers() if given.text(SERVERS) or is_delta else None
    return ArchiveWriteOptions(_address(given), servers, is_delta)


def archive_read_options(options: Mapping[str, str]) -> ArchiveReadOptions:
    """Parse the options of a batch read. Raises ``InvalidOption``."""
    known = ("path", "topics", "partitions", "startingOffset", "endingOffset", "maxRecordsPerPartition")
    given = Given(options, known, {})
    number = "give a whole number from 0 on"
    return ArchiveReadOptions(
        address=_address(given),
        topics=given.parsed("topics", None, _names, "write topics with commas between them"),
        partitions=given.parsed("partitions", None, _numbers, "write numbers with commas between them"),
        start=given.parsed("startingOffset", None, _offset, number),
        end=given.parsed("endingOffset", None, _offset, number),
        max_records_per_partition=given.count("maxRecordsPerPartition"),
    )


def _address(given: Given) -> str:
    address = given.text("path")
    if not address:
        raise InvalidOption(f"path is missing; {_PLACE}")
    return address


def _names(text: str) -> frozenset[str]:
    names = frozenset(part.strip() for part in text.split(","))
    if not all(names):
        raise ValueError(text)
    return names


def _numbers(text: str) -> frozenset[int]:
    return frozenset(_offset(part) for part in text.split(","))


def _offset(text: str) -> int:
    if int(text) < 0:
        raise ValueError(text)
    return int(text)
