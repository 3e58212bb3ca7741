"""Writes an archive as a Delta table: ``layout=delta`` of the sink. The driver needs ``deltalake``.

Decides: how each batch, and each offset of a partition, gets into the table exactly once. Leaves to others:
files (``files``), and the log of the table (``deltalake``).

Each batch is one commit of the table. It adds the files of the batch and sets these transaction versions::

    <query id>               the number of the batch
    raftlog/orders/0/start   the first offset of the partition, once
    raftlog/orders/0/end     the offset where its next batch begins

The versions stay when ``OPTIMIZE``, ``VACUUM`` or ``DELETE`` rewrites or removes files. A commit that loses a
race is tried again with the versions that the winner has set.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from raftlog.extras import install_command
from raftlog.types import TopicPartition
from spark_io.archive.entries import MANIFESTS, Catalogue, Entry
from spark_io.archive.files import SCHEMA
from spark_io.archive.storage import open_storage
from spark_io.errors import ArchiveGap, ArchiveOverlap, ArchiveUnreachable, InvalidOption
from spark_io.planning import Range

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable
    from deltalake.transaction import AddAction

ATTEMPTS_MAX: Final = 20  # attempts of one commit, against other writers of the table
TABLE_SCHEMA: Final = pa.schema(
    [pa.field(one.name, pa.timestamp("us", "UTC")) if one.name == "timestamp" else one for one in SCHEMA]
)
IsEmpty = Callable[[Range], bool]


def check_installed() -> None:
    """Raise ``ArchiveUnreachable`` without the package ``deltalake``."""
    try:
        import deltalake  # noqa: F401
    except ImportError as error:
        raise ArchiveUnreachable(
            f"layout=delta needs the package deltalake on the driver ({error}): "
            f"{install_command('delta')}, or leave out the option layout"
        ) from error


class DeltaArchive:
    """A Delta table with the records of partitions, each partition without a gap and each offset once."""

    def __init__(self, address: str) -> None:
        """``address`` is a directory, or a URI that both fsspec and ``deltalake`` know, such as ``s3://``."""
        self._address = address

    def add(self, query: str, batch: int, added: Sequence[Entry], is_empty: IsEmpty) -> bool:
        """Commit the files of a batch. False if the batch was committed before: these files then never count.

        ``is_empty`` says whether the log has no records at the offsets in a gap before a new file. Raises
        ``ArchiveOverlap`` and ``ArchiveGap``; then the batch does not count.
        """
        from deltalake.exceptions import CommitFailedError, DeltaError

        for _ in range(ATTEMPTS_MAX):
            table = self._table()
            newest = None if table is None else table.transaction_version(query)
            if newest is not None and batch <= newest:
                _check_newest(query, batch, newest)
                return False
            before = {} if table is None else _extents(table, {one.target for one in added})
            after = following(added, before, is_empty)
            actions, properties = [_action(one) for one in added], _properties(query, batch, before, after)
            try:
                if table is None:
                    self._create(actions, properties)
                else:
                    schema = table.schema()
                    table.create_write_transaction([*actions], "append", schema, commit_properties=properties)
            except CommitFailedError:
                continue
            except DeltaError:
                if table is not None or self._table() is None:
                    raise
                continue  # another driver has created the table
            return True
        raise ArchiveOverlap(
            f"other writers changed {self._address} {ATTEMPTS_MAX} times during the commit of batch {batch}; "
            "let only one query write it, and start the query again"
        )

    def of(self, target: TopicPartition) -> list[Range]:
        """The archived offsets of a partition: a list with one range, or an empty list."""
        table = self._table()
        return [] if table is None else [*_extents(table, {target}).values()]

    def topic_ids(self, topic: str) -> tuple[str, ...]:
        """Return an empty tuple: a table does not store ids of topics."""
        return ()

    def _table(self) -> DeltaTable | None:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            return DeltaTable(self._address)
        except TableNotFoundError:
            return None

    def _create(self, actions: list[AddAction], properties: CommitProperties) -> None:
        from deltalake import Schema
        from deltalake.transaction import create_table_with_add_actions

        if open_storage(self._address).names(MANIFESTS):
            raise InvalidOption(
                f"layout is delta, but {self._address} has an archive with manifests; use another path"
            )
        create_table_with_add_actions(
            self._address,
            Schema.from_arrow(TABLE_SCHEMA),
            actions,
            name="raftlog",
            commit_properties=properties,
        )


def following(
    added: Sequence[Entry], before: Mapping[TopicPartition, Range], is_empty: IsEmpty
) -> dict[TopicPartition, Range]:
    """The archived offsets of each partition after the new files are added.

    Raises ``ArchiveOverlap`` and ``ArchiveGap``.
    """
    Catalogue((), {}, 0).check_added(added)
    files, found = Catalogue(added, {}, 0), {}
    for target in files.partitions:
        some = files.of(target)
        extent = before.get(target, Range(target.topic, target.partition, some[0].start, some[0].start))
        for one in some:
            extent = extent._replace(end=_joined(extent, one, is_empty))
        found[target] = extent
    return found


def _joined(extent: Range, one: Entry, is_empty: IsEmpty) -> int:
    if one.start < extent.end:
        raise ArchiveOverlap(
            f"offsets {one.start} to {one.end - 1} of {one.target} begin below offset {extent.end}, the end "
            "of the table: another query writes to it, or the checkpoint is new; set startingOffsets to the "
            "end, or use another path"
        )
    if one.start > extent.end and not is_empty(extent._replace(start=extent.end, end=one.start)):
        raise ArchiveGap(
            f"offsets {extent.end} to {one.start - 1} of {one.target} have records and are not in the table, "
            f"which ends at {extent.end}; set startingOffsets to this end, or use another path"
        )
    return one.end


def _check_newest(query: str, batch: int, newest: int) -> None:
    if batch < newest:
        raise ArchiveOverlap(
            f"batch {batch} of query {query} is too old, the table has batch {newest}: another driver runs "
            "this query, or the checkpoint was restored from a copy; stop this query, or use a new "
            "checkpointLocation and startingOffsets where the table ends"
        )


def _extents(table: DeltaTable, targets: Iterable[TopicPartition]) -> dict[TopicPartition, Range]:
    found = {}
    for one in targets:
        start, end = (table.transaction_version(name) for name in _names(one))
        if start is not None and end is not None:
            found[one] = Range(one.topic, one.partition, start, end)
    return found


def _names(target: TopicPartition) -> tuple[str, str]:
    """The names of the transaction versions with the start and the end of a partition."""
    name = f"raftlog/{target.topic}/{target.partition}"
    return f"{name}/start", f"{name}/end"


def _properties(
    query: str,
    batch: int,
    before: Mapping[TopicPartition, Range],
    after: Mapping[TopicPartition, Range],
) -> CommitProperties:
    from deltalake import CommitProperties, Transaction

    versions = {query: batch}
    for target, extent in after.items():
        start, end = _names(target)
        versions[end] = extent.end
        if target not in before:
            versions[start] = extent.start
    return CommitProperties(
        max_commit_retries=0,  # because the versions must be read again
        app_transactions=[Transaction(name, version) for name, version in versions.items()],
    )


def _action(one: Entry) -> AddAction:
    from deltalake.transaction import AddAction

    low = {"topic": one.topic, "partition": one.partition, "offset": one.start}
    statistics = {
        "numRecords": one.rows,
        "minValues": {**low, "timestamp": _instant(one.min_timestamp)},
        "maxValues": {**low, "offset": one.end - 1, "timestamp": _instant(one.max_timestamp)},
        "nullCount": dict.fromkeys((*low, "timestamp"), 0),
    }
    return AddAction(one.path, one.bytes, {}, round(time.time() * 1_000), True, json.dumps(statistics))


def _instant(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1_000, UTC).isoformat(timespec="milliseconds")
