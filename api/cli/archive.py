"""Commands about archives: ``archive write``, ``list``, ``verify``, ``replay``, ``compact`` and ``report``.

They need pyarrow, and fsspec for object stores, but not Spark.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import click

from api.cli.connection import connected
from api.cli.output import (
    DEFAULT_SERVER,
    REFUSED,
    ServerOption,
    done,
    errors_reported,
    is_json,
    note,
    problem,
    show,
    write_json,
    wrong_usage,
)
from api.cli.parameters import Argument, Option
from api.cli.tables import Row, time_text
from raftlog.errors import RaftlogError
from raftlog.units import counted, duration_ms

if TYPE_CHECKING:
    from spark_io.archive.entries import Catalogue
    from spark_io.archive.storage import Storage
    from spark_io.archive.writing import TopicWriter
    from spark_io.planning import Range

ArchiveArgument = Annotated[
    str, Argument(help="A directory, or an address such as s3://bucket/prefix.", metavar="ARCHIVE")
]
_BYTES_MAX = 128 << 20
_OPTIONS_OF_SPARK = {
    "set failOnDataLoss=false": "give --skip-lost",
    "use a new checkpointLocation to read from the beginning": "use another archive",
}


def write(
    topics: Annotated[
        list[str], Argument(help="The topics to archive.", metavar="TOPIC...", completes="topics")
    ],
    archive: ArchiveArgument,
    follow: Annotated[bool, Option("--follow", "-f", help="Continue with new records until Ctrl-C.")] = False,
    interval: Annotated[
        str, Option("--interval", metavar="DURATION", help="With --follow, the time between batches.")
    ] = "1m",
    batch_records: Annotated[
        int, Option("--batch-records", min=1, help="Approximate maximum of records in a batch.")
    ] = 1_000_000,
    batch_bytes: Annotated[
        int, Option("--batch-bytes", min=1, help="Approximate maximum of log bytes in a batch.")
    ] = _BYTES_MAX,
    skip_lost: Annotated[
        bool, Option("--skip-lost", help="Skip records that were deleted before they were archived.")
    ] = False,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Archive the committed records of topics as Parquet files, each offset once.

    Continues where the archive ends, also after a crash, and stops at the end that each topic had at the
    start. Reports to the brokers up to which offset each partition is archived:
    retention.archive.required=true waits for it.

    \b
    Examples:
      raftlog archive write orders /mnt/archive
      raftlog archive write orders payments s3://history/topics --follow
    """
    pause_s = _seconds("--interval", interval)
    with errors_reported(changing=True), _opened(archive) as (storage, _):
        from spark_io.archive.writing import TopicWriter, write_options

        with connected(server) as client:
            for topic in topics:
                client.topics.describe(topic)
            writers = []
            for topic in dict.fromkeys(topics):
                options = write_options(
                    server,
                    topic,
                    batch_records=batch_records,
                    batch_bytes=batch_bytes,
                    fails_on_loss=not skip_lost,
                )
                writers.append(TopicWriter(client, storage, topic, options))
            try:
                _write_all(writers, pause_s if follow else None)
            finally:
                if rows := _written(writers):
                    show(rows)


def list_all(
    archive: ArchiveArgument,
    files: Annotated[bool, Option("--files", help="List files instead of partitions.")] = False,
) -> None:
    """List the partitions of an archive with their archived offsets.

    \b
    Examples:
      raftlog archive list /mnt/archive
      raftlog archive list s3://history/orders --files -o json
    """
    with errors_reported(), _opened(archive) as (_, catalogue):
        rows = _files(catalogue) if files else _partitions(catalogue)
        columns = (
            ()
            if files
            else ("topic", "partition", "start", "end", "rows", "files", "size_bytes", "last_time")
        )
        show(rows, columns, empty=f"there is no archive at {archive}")


def verify(
    archive: ArchiveArgument,
    remove_unlisted: Annotated[
        bool, Option("--remove-unlisted", help="Remove unlisted files that killed tasks have left.")
    ] = False,
    older_than: Annotated[
        str, Option("--older-than", metavar="DURATION", help="Minimum age of removed files, such as 12h.")
    ] = "1d",
) -> None:
    """Verify every file of an archive and its offsets; ends with 1 after a problem.

    Reads all files. Each file must exist with the checksum and the rows of its manifest, and the offsets of a
    partition must have neither gaps nor overlaps.

    Files that no manifest lists are ignored; killed tasks leave such files. --remove-unlisted removes those
    whose offsets are in listed files, unless a listed file has a problem.

    \b
    Examples:
      raftlog archive verify /mnt/archive
      raftlog archive verify /mnt/archive --remove-unlisted --older-than 12h
    """
    with errors_reported(), _opened(archive) as (storage, catalogue):
        from spark_io.archive.verifying import verify as problems

        if not catalogue.files:
            problem(f"error: there is no archive at {archive}; correct the address")
            raise click.exceptions.Exit(REFUSED)
        grace_s = _seconds("--older-than", older_than)
        found: list[Row] = [{"where": one.where, "problem": one.what} for one in problems(storage, catalogue)]
        show(found)
        count = counted(len(catalogue.files), "file")
        whole = f"{count} of {counted(len(catalogue.partitions), 'partition')}"
        note(f"{whole}: {counted(len(found), 'problem')}")
        paths = {one.path for one in catalogue.files}
        is_damaged = any(row["where"] in paths for row in found)
        _note_unlisted(storage, catalogue, grace_s, removes=remove_unlisted, is_damaged=is_damaged)
        if found:
            raise click.exceptions.Exit(REFUSED)


def replay(
    archive: ArchiveArgument,
    topic: Annotated[str, Argument(help="The archived topic.", completes="topics")],
    into: Annotated[str, Option("--into", help="The topic that gets the records.", completes="topics")],
    job: Annotated[str, Option("--job", help="Name of the job; a repeated run continues it.")],
    partition: Annotated[
        int | None, Option("--partition", "-p", min=0, help="Only this partition.  [default: all]")
    ] = None,
    start: Annotated[
        int | None, Option("--from", min=0, help="The first offset.  [default: where the archive begins]")
    ] = None,
    end: Annotated[
        int | None, Option("--to", min=0, help="The offset to end before.  [default: the archive's end]")
    ] = None,
    chunk: Annotated[int, Option("--chunk", min=1, help="Records of one transaction.")] = 10_000,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Send archived records of a topic to a topic, each once. A repeated job continues where it ended.

    Records keep their partition, key, value, headers and time, and get the headers orig.topic, orig.partition
    and orig.offset. The target must have at least as many partitions as the archived topic. After an error or
    a crash, run the command again with the same job.

    \b
    Example:
      raftlog archive replay /mnt/archive orders --into orders-2024 --job restore-1
    """
    with errors_reported(changing=True), _opened(archive) as (storage, catalogue):
        from spark_io.archive.replaying import replay as replayed

        ranges = _ranges(catalogue, topic, partition, start, end)
        with connected(server) as client:
            sent: list[Row] = []
            for one in ranges:
                count = replayed(
                    client, storage, catalogue, one, into=into, job=job, chunk_rows=chunk, progress=_progress
                )
                where = f"{topic}/{one.partition}, offsets {one.start} to {one.end - 1}"
                span = {"from": one.start, "to": one.end}
                sent.append({"topic": topic, "partition": one.partition, **span, "records": count})
                note(f"{where}: {counted(count, 'record')} sent to {into}; job {job} has all of them")
            if is_json():
                write_json(sent)


def compact(
    archive: ArchiveArgument,
    target_bytes: Annotated[
        int, Option("--target-bytes", min=1, help="Files are joined up to this size.")
    ] = _BYTES_MAX,
) -> None:
    """Join small files of an archive; readers see the same records.

    The joined files are kept, because running readers still need them.

    \b
    Example:
      raftlog archive compact /mnt/archive
    """
    with errors_reported(changing=True), _opened(archive) as (storage, _):
        from spark_io.archive.compacting import compact as joined

        found = joined(storage, target_bytes=target_bytes)
        if found is None:
            problem("another compaction has finished first; nothing was changed")
            raise click.exceptions.Exit(REFUSED)
        done(f"{counted(found[0], 'file')} became {found[1]}", before=found[0], after=found[1])


def report(
    archive: ArchiveArgument,
    topic: Annotated[str | None, Argument(help="Only this topic.  [default: all of the archive]")] = None,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Report nothing; show the offsets that brokers have.")
    ] = False,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Report to brokers up to which offset partitions are archived.

    Retention of topics with retention.archive.required=true deletes nothing above that offset. The command
    archive write reports after each batch; so does the archive sink of Spark if it has bootstrap.servers. The
    offset never decreases.

    \b
    Examples:
      raftlog archive report /mnt/archive
      raftlog archive report s3://history/topics orders --dry-run
    """
    with errors_reported(changing=True), _opened(archive) as (_, catalogue):
        from spark_io.archive.reporting import report as reported

        topics = {one.topic for one in catalogue.partitions if topic in (None, one.topic)}
        if not topics:
            wrong_usage("the archive has no records of the topic; `raftlog archive list` shows its contents")
        with connected(server) as client:
            found = reported(client, catalogue, topics, changes_nothing=dry_run)
        rows: list[Row] = [
            {
                "topic": one.target.topic,
                "partition": one.target.partition,
                "log_start": one.log_start,
                "archived_up_to": one.archived_up_to,
                "archive_end": one.archive_end,
            }
            for one in found
        ]
        show(rows)


def _note_unlisted(
    storage: Storage, catalogue: Catalogue, grace_s: float, *, removes: bool, is_damaged: bool
) -> None:
    """Print the number of files that no manifest lists; with ``removes``, remove the files that can be
    removed safely.
    """
    from spark_io.archive.unlisted import find_unlisted, removable, remove

    found = find_unlisted(storage, now_s=time.time())
    if not found:
        return
    note(f"{counted(len(found), 'file')} in no manifest, which are ignored")
    if not removes:
        return
    if is_damaged:
        note("no file is removed: unlisted files may have records that a damaged file has lost")
        return
    chosen = removable(found, catalogue, grace_s)
    remove(storage, chosen)
    note(f"{counted(len(chosen), 'file')} removed; the others are newer, or have offsets that no file has")


def _write_all(writers: Sequence[TopicWriter], pause_s: float | None) -> None:
    """Archive the topics once; with ``pause_s``, repeatedly, and temporary errors do not end the command."""
    while True:
        begun_s = time.monotonic()
        for one in writers:
            try:
                _write_topic(one)
            except RaftlogError as error:
                if pause_s is None or not error.retryable:
                    raise
                note(f"{one.topic}: {error}; trying again")
        if pause_s is None:
            return
        time.sleep(max(0.0, begun_s + pause_s - time.monotonic()))


def _write_topic(writer: TopicWriter) -> None:
    for files in writer.write():
        records = counted(sum(one.rows for one in files), "record")
        note(f"{writer.topic}: {records} in {counted(len(files), 'file')}")


def _written(writers: Sequence[TopicWriter]) -> list[Row]:
    return [
        {
            "topic": target.topic,
            "partition": target.partition,
            "from": one.start,
            "to": one.end,
            "records": one.records,
            "size_bytes": one.bytes,
        }
        for writer in writers
        for target, one in sorted(writer.written.items())
    ]


def _seconds(option: str, duration: str) -> float:
    found = duration_ms(duration)
    if found is None:
        wrong_usage(f"{option} is {duration}; give a duration such as 12h or 1d")
    return found / 1000


@contextmanager
def _opened(archive: str) -> Iterator[tuple[Storage, Catalogue]]:
    """Open an archive and its catalogue for a block; errors of the archive are reported like errors of
    brokers.
    """
    try:
        import pyarrow as pa

        from spark_io.archive import catalogue
        from spark_io.archive.storage import open_storage
        from spark_io.errors import (
            ArchiveDamaged,
            ArchiveOverlap,
            ArchiveUnreachable,
            DataLoss,
            InvalidOption,
        )
    except ModuleNotFoundError as error:
        from raftlog.extras import install_command

        problem(f"error: archives need more packages ({error.name}): {install_command('archive')}")
        raise click.exceptions.Exit(REFUSED) from None
    try:
        storage = open_storage(archive)
        yield storage, catalogue.load(storage)
    except (
        ArchiveDamaged,
        ArchiveOverlap,
        ArchiveUnreachable,
        DataLoss,
        InvalidOption,
        pa.ArrowException,
    ) as error:
        problem(f"error: {_in_words(error)}")
        raise click.exceptions.Exit(REFUSED) from None


def _in_words(error: Exception) -> str:
    """Return the message of an error, in which options of this command replace Spark's options."""
    text = str(error)
    for of_spark, ours in _OPTIONS_OF_SPARK.items():
        text = text.replace(of_spark, ours)
    return text


def _ranges(
    catalogue: Catalogue, topic: str, partition: int | None, start: int | None, end: int | None
) -> list[Range]:
    from spark_io.planning import Range

    found = []
    for one in catalogue.partitions:
        if one.topic == topic and partition in (None, one.partition):
            files = catalogue.of(one)
            first = files[0].start if start is None else start
            found.append(Range(topic, one.partition, first, files[-1].end if end is None else end))
    if not found:
        wrong_usage(f"the archive has no records of {topic}; `raftlog archive list` shows its contents")
    if any(one.start >= one.end for one in found):
        wrong_usage("--from is not below --to; choose offsets that `raftlog archive list` shows")
    return found


def _progress(at: int, count: int) -> None:
    note(f"up to offset {at}: {counted(count, 'record')}")


def _partitions(catalogue: Catalogue) -> list[Row]:
    rows: list[Row] = []
    for target in catalogue.partitions:
        files = catalogue.of(target)
        rows.append(
            {
                "topic": target.topic,
                "partition": target.partition,
                "start": files[0].start,
                "end": files[-1].end,
                "rows": sum(one.rows for one in files),
                "files": len(files),
                "size_bytes": sum(one.bytes for one in files),
                "first_time": time_text(min(one.min_timestamp for one in files)),
                "last_time": time_text(max(one.max_timestamp for one in files)),
            }
        )
    return rows


def _files(catalogue: Catalogue) -> list[Row]:
    return [
        {"path": one.path, "start": one.start, "end": one.end, "rows": one.rows, "size_bytes": one.bytes}
        for one in catalogue.files
    ]
