"""The command ``verify``: verifies the files of a stopped broker, and reports damage."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from api.cli.output import REFUSED, errors_reported, note, show
from api.cli.parameters import Option
from raftlog.units import counted

if TYPE_CHECKING:
    from raftlog.repair.copies import Misfit
    from raftlog.repair.verify import VerifyReport
    from raftlog.storage.data_directory import Identity
    from raftlog.storage.filesystem import Filesystem
    from raftlog.types import NodeId

DirectoryOption = Annotated[
    Path,
    Option(
        "--data",
        path=click.Path(exists=True, file_okay=False, path_type=Path),
        help="A broker's data directory, or a directory with several.",
    ),
]

_REMEDY = "start the broker: it is repaired from its peers"
_REMEDY_TWIN = "start the broker: it is repaired from its twin"
_REMEDY_MISFIT = "restore copies of all brokers that were made while all of them were stopped"
_REMEDY_ALONE = "restore the file from a copy, or remove the directory if its data may be lost"


def verify(data: DirectoryOption) -> None:
    """Verify all files of a stopped broker; ends with 1 if it finds damage.

    The command writes nothing. Normal effects of a crash (a torn tail above the durable end, an index to
    rebuild) are reported but are not damage. A running broker scrubs its own files: see the metrics
    raftlog_scrub_*. Data of several brokers is also compared: copies made while brokers ran may not fit
    together.

    \b
    Example:
      raftlog verify --data raftlog-data/broker-1
    """
    with errors_reported():
        from partitions.hosting.trash import TRASH_FOLDER
        from raftlog.errors import InvalidRequest
        from raftlog.repair.verify import examine
        from raftlog.storage import twin_file
        from raftlog.storage.batch_search import Zeros
        from raftlog.storage.data_directory import IDENTITY_NAME, found_identity, is_in_use
        from raftlog.storage.os_filesystem import READ_FLAGS, OsFile, OsFilesystem

        class ReadOnly(OsFilesystem):
            """A filesystem that needs no permission to write."""

            def open(self, path: str, *, create: bool = False) -> OsFile:
                return OsFile(path, READ_FLAGS)

        rows: list[dict[str, object]] = []
        owners: dict[str, Identity] = {}
        for directory in sorted({found.parent for found in data.rglob(f"{IDENTITY_NAME}*")}):
            if is_in_use(str(directory)):
                raise InvalidRequest(
                    f"data: a broker is running on {directory}; stop it, or use its metrics raftlog_scrub_*"
                )
            if (owner := found_identity(ReadOnly(), str(directory))) is not None:
                owners[str(directory)] = owner
            for name in _kept_twice(directory):
                damaged = twin_file.damaged(ReadOnly(), str(directory), name)
                remedy = _REMEDY_TWIN if len(damaged) == 1 else _REMEDY_ALONE
                rows += [_row(path, 0, _size(path), "missing, damaged, or older", remedy) for path in damaged]
        replicas: dict[str, VerifyReport] = {}
        paths = sorted(path for path in data.rglob("Partition-*") if path.is_dir())
        found = [path for path in paths if TRASH_FOLDER not in path.relative_to(data).parts]
        for partition in found:
            seen = replicas[str(partition)] = examine(ReadOnly(), str(partition))
            rows += _rows(seen)
            for torn in seen.torn:
                if isinstance(torn, Zeros):
                    continue  # space that was filled with zeros in advance
                note(f"{torn.path}: torn tail above the durable end at byte {torn.position}; opening cuts it")
            for index in seen.stale:
                note(f"{index.path}: {index.reason}; opening rebuilds it")
            for slot in seen.flipped:
                note(f"{slot.path}: {slot.reason}; reading corrects it")
        rows += _misfits(ReadOnly(), owners, replicas)
        show(rows, ("file", "from_byte", "damage", "remedy"))
        note(f"{counted(len(found), 'log')} read, {counted(len(rows), 'damage')}")
        if rows:
            raise click.exceptions.Exit(REFUSED)


def _kept_twice(directory: Path) -> list[str]:
    """Return the names of files of which the data directory has two copies, relative to the directory."""
    from partitions.hosting.applied_metadata import APPLIED_FILE
    from partitions.hosting.directories import RECOVERY_FILE
    from raftlog.storage import twin_file
    from raftlog.storage.data_directory import IDENTITY_NAME
    from raftlog.storage.disk_age import AGE_FILE
    from raftlog.storage.replica_progress import PROGRESS_FILE
    from raftlog.storage.replica_registry import DISK_FILE, REPLICAS_FILE

    patterns = (
        IDENTITY_NAME,
        DISK_FILE,
        REPLICAS_FILE,
        AGE_FILE,
        PROGRESS_FILE,
        APPLIED_FILE,
        f"*/Partition-*/{RECOVERY_FILE}",
    )
    plain, twin = twin_file.ENDINGS
    found = {path for pattern in patterns for path in directory.glob(pattern + plain)}
    found |= {path for pattern in patterns for path in directory.glob(pattern + twin)}
    return sorted({str(path.relative_to(directory)).removesuffix(twin) for path in found})


def _size(path: str) -> int:
    return os.path.getsize(path) if os.path.exists(path) else 0


def _rows(seen: VerifyReport) -> list[dict[str, object]]:
    rows = [_row(damage.path, damage.position, damage.end, damage.reason, _REMEDY) for damage in seen.damages]
    for hole in seen.holes:
        last = "the end" if hole.last is None else hole.last
        note(f"{seen.directory}: entries {hole.first} to {last} are not complete here")
    return rows


def _misfits(
    filesystem: Filesystem, owners: Mapping[str, Identity], replicas: Mapping[str, VerifyReport]
) -> list[dict[str, object]]:
    """Return a row for each log whose copies on the disks of several brokers do not fit together."""
    from raftlog.repair.copies import difference, misfit
    from raftlog.repair.service import voters_in_files
    from raftlog.types import NodeId

    if len({*owners.values()}) < len(owners):
        note("the directory has several copies of one broker: logs are not compared")
        return []
    logs: dict[tuple[str, str], dict[NodeId, VerifyReport]] = {}
    for directory, owner in owners.items():
        for path, seen in replicas.items():
            if path.startswith(f"{directory}/"):
                copies = logs.setdefault((owner.cluster_id, path.removeprefix(directory)), {})
                copies[NodeId(owner.node_id)] = seen
    found: list[Misfit | None] = []
    for copies in (each for each in logs.values() if len(each) > 1):
        named = [voters for seen in copies.values() if (voters := voters_in_files(filesystem, seen))]
        found += [misfit(copies, named), difference(filesystem, copies)]
    return [_row(each.directory, 0, 0, each.reason, _REMEDY_MISFIT) for each in found if each is not None]


def _row(file: str, position: int, end: int, what: str, remedy: str) -> dict[str, object]:
    return {"file": file, "from_byte": position, "to_byte": end, "damage": what, "remedy": remedy}
