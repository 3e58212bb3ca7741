"""Commands that look into files of a broker: ``inspect segment``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from api.cli.output import REFUSED, Format, OutputOption, errors_reported, note, write_json, write_table

if TYPE_CHECKING:
    from raftlog.storage.inspect import BatchRow

FileArgument = Annotated[
    Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="A segment file, *.log.")
]


def segment(file: FileArgument, output: OutputOption = Format.TABLE) -> None:
    """Show the batches of a segment file with their checksums verified; ends with 1 when one is damaged.

    The file is only read, so its broker may be running; the end of a file that is being written
    may then look cut short.

    \b
    Example:
      raftlog inspect segment data/orders-5c1f/Partition-0/00000000000000000000.log
    """
    with errors_reported():
        from raftlog.storage.inspect import inspect_segment
        from raftlog.storage.os_filesystem import READ_FLAGS, OsFile, OsFilesystem

        class ReadOnly(OsFilesystem):
            """Neither needs nor uses the right to write."""

            def open(self, path: str, *, create: bool = False) -> OsFile:
                return OsFile(path, READ_FLAGS)

        rows = list(inspect_segment(ReadOnly(), str(file)))
        if output is Format.JSON:
            write_json([_as_json(row) for row in rows])
        else:
            write_table([row.cells() for row in rows])
        if not rows:
            note(f"{file} holds no batches")
        damaged = [row for row in rows if not row.crc_ok]
        for row in damaged:
            note(f"DAMAGED at byte {row.position}: {row.problem}; nothing behind it can be read")
        if damaged:
            raise typer.Exit(REFUSED)


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
            "bytes": header.size_bytes,
            "base_timestamp": header.base_timestamp,
            "max_timestamp": header.max_timestamp,
            "producer_id": header.producer_id,
            "producer_epoch": header.producer_epoch,
            "base_sequence": header.base_sequence,
            "control": header.is_control,
        }
    return found
