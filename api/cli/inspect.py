"""Commands that show files of a broker: ``inspect segment``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from api.cli.output import (
    REFUSED,
    errors_reported,
    note,
    problem,
    show,
    wrong_usage,
)
from api.cli.parameters import Argument, Option

if TYPE_CHECKING:
    from raftlog.storage.filesystem import Filesystem
    from raftlog.storage.inspect import BatchRow

FileArgument = Annotated[
    Path,
    Argument(
        metavar="FILE",
        path=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="A segment file, *.log.",
    ),
]
OffsetOption = Annotated[int | None, Option(min=0, help="First offset to show with --records.")]
LimitOption = Annotated[int | None, Option(min=1, help="Number of records to show with --records.")]


def segment(
    file: FileArgument,
    records: Annotated[bool, Option("--records", help="Show records, one JSON object per line.")] = False,
    offset: OffsetOption = None,
    limit: LimitOption = None,
) -> None:
    """Show the batches of a segment file and verify checksums; ends with 1 if a batch is damaged.

    The command only reads the file, so its broker may be running; the end of the file may then look torn.

    \b
    Examples:
      raftlog inspect segment data/orders-5c1f/Partition-0/00000000000000000000.log
      raftlog inspect segment 00000000000000000000.log --records --offset 42 --limit 10
    """
    if not records and (offset is not None or limit is not None):
        wrong_usage("--offset and --limit choose records; add --records")
    with errors_reported():
        from raftlog.storage.inspect import inspect_segment
        from raftlog.storage.os_filesystem import READ_FLAGS, OsFile, OsFilesystem

        class ReadOnly(OsFilesystem):
            """A filesystem that needs no permission to write."""

            def open(self, path: str, *, create: bool = False) -> OsFile:
                return OsFile(path, READ_FLAGS)

        if records:
            if not _print_records(ReadOnly(), str(file), offset or 0, limit):
                raise click.exceptions.Exit(REFUSED)
            return
        rows = list(inspect_segment(ReadOnly(), str(file)))
        show(
            [row.cells() for row in rows],
            ("position", "offsets", "records", "size_bytes", "timestamps", "crc"),
            value=[_as_json(row) for row in rows],
            empty=f"{file} holds no batches",
        )
        damaged = [row for row in rows if not row.crc_ok]
        for row in damaged:
            _tell_damage(row)
        if damaged:
            raise click.exceptions.Exit(REFUSED)


def _print_records(filesystem: Filesystem, path: str, first: int, limit: int | None) -> bool:
    """Print records while they are read; return whether all requested records could be read."""
    from itertools import islice

    from api.cli.message_format import json_line
    from raftlog.errors import CorruptBatch
    from raftlog.records.reader import iter_records
    from raftlog.storage.inspect import inspect_batches

    is_sound, left = True, limit
    for row, batch in inspect_batches(filesystem, path):
        if batch is None:
            _tell_damage(row)
            return False
        if batch.header.is_control or batch.last_offset < first:
            continue
        try:
            for record in islice(iter_records(batch, first), left):
                sys.stdout.buffer.write(json_line(record, {}))
                left = None if left is None else left - 1
        except CorruptBatch as error:
            note(
                f"the batch at byte {row.position}, with offset {batch.base_offset}, cannot be decoded: "
                f"{error}"
            )
            is_sound = False
        if left == 0:
            break
    return is_sound


def _tell_damage(row: BatchRow) -> None:
    problem(f"DAMAGED at byte {row.position}: {row.problem}; later bytes cannot be read")


def _as_json(row: BatchRow) -> dict[str, object]:
    header = row.header
    found: dict[str, object] = {"position": row.position, "crc_ok": row.crc_ok, "problem": row.problem}
    if header is not None:
        found |= {
            "base_offset": header.base_offset,
            "last_offset": header.last_offset,
            "leader_epoch": header.leader_epoch,
            "codec": header.attributes & 7,
            "records": header.record_count,
            "size_bytes": header.size_bytes,
            "base_timestamp": header.base_timestamp,
            "max_timestamp": header.max_timestamp,
            "producer_id": header.producer_id,
            "producer_epoch": header.producer_epoch,
            "base_sequence": header.base_sequence,
            "control": header.is_control,
        }
    return found
