"""The command ``import``: copies a topic of Kafka, and the committed offsets of its groups.

Decides: options, the target topic, output. Leaves to others: the copying (``api.kafka_import``).
"""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Annotated, NamedTuple

import click

from api.cli.connection import RETRY_TIMEOUT, connected
from api.cli.output import (
    DEFAULT_SERVER,
    REFUSED,
    UNREACHABLE,
    ServerOption,
    errors_reported,
    is_json,
    note,
    problem,
    write_json,
    write_table,
    wrong_usage,
)
from api.cli.parameters import Argument, Option
from api.cli.tables import Row
from api.stop_signals import stop_signals
from raftlog.errors import InvalidRequest, RaftlogError, TopicNotFound
from raftlog.units import counted

if TYPE_CHECKING:
    from api.kafka_import.accounts import Copied
    from api.kafka_import.copying import Progress
    from api.kafka_import.source import Found, Lost, Source
    from raftlog.client import AsyncClient
    from raftlog.wire.bodies import TopicDescription

_ADDRESS = re.compile(r"kafka://([^/]+)/([A-Za-z0-9._-]+)")
_KEPT = ("retention.ms", "retention.bytes", "cleanup.policy")
_ALL = "all"


class _Wanted(NamedTuple):
    bootstrap: str
    topic: str
    into: str
    groups: str | None
    follows: bool
    counts: bool
    replication_factor: int | None


class _Result(NamedTuple):
    partitions: Sequence[Row]
    groups: Sequence[Row]
    problems: Sequence[str]


def import_topic(
    source: Annotated[str, Argument(metavar="kafka://HOST:PORT/TOPIC", help="The topic in Kafka.")],
    into: Annotated[
        str | None,
        Option(
            "--into", metavar="TOPIC", help="The target topic.  [default: the same name]", completes="topics"
        ),
    ] = None,
    groups: Annotated[
        str | None,
        Option(
            "--groups", metavar="A,B", help="Consumer groups whose committed offsets are translated, or all."
        ),
    ] = None,
    follow: Annotated[bool, Option("--follow", "-f", help="Continue with new records until Ctrl-C.")] = False,
    no_count: Annotated[
        bool, Option("--no-count", help="Do not count the records of the target at the end.")
    ] = False,
    replication_factor: Annotated[
        int | None,
        Option("--replication-factor", "-r", min=1, help="Replicas of a new topic.  [default: the brokers']"),
    ] = None,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Copy a topic of Kafka, each record once. Continues where an earlier run ended.

    Records keep their partition, key, value, headers and time. If the target topic does not exist, it is
    created with as many partitions. The topic TOPIC.kafka-import has the account of the copied records; keep
    it until the last run. At the end the command counts the records of both sides, and ends with 1 if the
    numbers differ.

    \b
    Examples:
      raftlog import kafka://localhost:9092/orders
      raftlog import kafka://k1:9092,k2:9092/orders --into orders-2 --groups billing,mail
      raftlog import kafka://localhost:9092/orders --groups all --follow
    """
    found = _ADDRESS.fullmatch(source)
    if found is None:
        wrong_usage(f"{source!r} is not an address such as kafka://localhost:9092/orders")
    wanted = _Wanted(found[1], found[2], into or found[2], groups, follow, not no_count, replication_factor)
    try:
        from aiokafka.errors import KafkaConnectionError, KafkaError
    except ModuleNotFoundError as error:
        problem(f"error: an import needs another package ({error.name}): pip install aiokafka")
        raise click.exceptions.Exit(REFUSED) from None
    with errors_reported(changing=True):
        try:
            with connected(server):
                pass  # checks that a broker answers
            result = asyncio.run(_imported(wanted, server))
        except KafkaConnectionError as error:
            problem(f"error: Kafka does not answer at {wanted.bootstrap} ({error})")
            raise click.exceptions.Exit(UNREACHABLE) from None
        except KafkaError as error:
            problem(f"error: Kafka: {error}")
            raise click.exceptions.Exit(REFUSED) from None
        _show(result)


async def _imported(wanted: _Wanted, server: str) -> _Result:
    from api.kafka_import.copying import Copying
    from api.kafka_import.source import opened
    from raftlog.client import AsyncClient

    async with (
        AsyncClient(server, retry_timeout=RETRY_TIMEOUT) as client,
        opened(wanted.bootstrap, wanted.topic) as source,
    ):
        target = await _target(client, source, wanted)
        until = None if wanted.follows else await source.ends()
        with _stopped(wanted.follows) as stopped, _progress() as progress:
            copying = Copying(client, source, target, progress)
            await copying.run(until, stopped.is_set)
        result = await _result(client, source, target, wanted)
        return result._replace(problems=[*map(_loss, copying.lost), *result.problems])


def _loss(lost: Lost) -> str:
    return (
        f"partition {lost.partition}: Kafka has deleted offsets {lost.start} to {lost.end - 1} since the "
        "last run; they are not copied"
    )


async def _target(client: AsyncClient, source: Source, wanted: _Wanted) -> TopicDescription:
    """Return the target topic. Creates it, and the topic for the accounts, if they are missing."""
    from api.kafka_import.copying import accounts_of

    count = len(source.partitions)
    try:
        target = await client.topics.describe(wanted.into)
    except TopicNotFound:
        target = await client.topics.create(
            wanted.into,
            partitions=count,
            replication_factor=wanted.replication_factor,
            config=_settings(await source.config()),
        )
        note(f"created topic {wanted.into} with {counted(count, 'partition')}")
    if target.partitions - len(target.decommissioned) != count:
        raise InvalidRequest(
            f"topic {wanted.into} has {counted(target.partitions, 'partition')}, but {wanted.topic} in Kafka "
            f"has {count}; records keep their partition, so choose another topic with --into"
        )
    if target.config["message.timestamp.type"] != "CreateTime":
        raise InvalidRequest(
            f"brokers set the time of records of {wanted.into}, but imported records keep theirs; run "
            f"`raftlog topic alter {wanted.into} --config message.timestamp.type=CreateTime`"
        )
    await client.topics.create(
        accounts_of(wanted.into),
        replication_factor=target.replication_factor,
        config={"retention.ms": -1},
        exist_ok=True,
    )
    return target


def _settings(of_kafka: Mapping[str, str]) -> dict[str, str | int]:
    """Return the settings of a new topic: Kafka's retention, and room for the largest record of Kafka's
    topic.
    """
    kept: dict[str, str | int] = {name: of_kafka[name] for name in _KEPT if name in of_kafka}
    largest = int(of_kafka.get("max.message.bytes", 0)) + (64 << 10)
    if largest > (1 << 20) + (64 << 10):
        kept["max.message.bytes"] = min(largest, 16 << 20)
    return {**kept, "message.timestamp.type": "CreateTime"}


async def _result(client: AsyncClient, source: Source, target: TopicDescription, wanted: _Wanted) -> _Result:
    from api.kafka_import.accounts import Copied
    from api.kafka_import.copying import accounts

    copied = Copied([each async for each in accounts(client, wanted.into)])
    partitions = [await _partition(client, copied, target, number, wanted) for number in source.partitions]
    problems = [
        _difference(row, target) for row in partitions if row["records"] not in (None, row["kafka_records"])
    ]
    return _Result(partitions, await _groups(client, source, copied, wanted, problems), problems)


async def _partition(
    client: AsyncClient, copied: Copied, target: TopicDescription, number: int, wanted: _Wanted
) -> Row:
    from api.kafka_import.positions import count

    runs = copied.runs[number]
    return {
        "partition": number,
        "kafka_from": runs[0].source if runs else None,
        "kafka_to": copied.following.get(number, 0),
        "kafka_records": copied.count(number),
        "records": await count(client, copied, target.name, number) if wanted.counts else None,
        "from": runs[0].target if runs else None,
        "to": runs[-1].target_end if runs else None,
    }


def _difference(row: Row, target: TopicDescription) -> str:
    why = ""
    if target.config["cleanup.policy"] != "delete":
        why = " (compaction removes older records of a key)"
    return (
        f"partition {row['partition']}: Kafka had {row['kafka_records']} records, but {target.name} has "
        f"{row['records']} of them{why or '; the others were deleted, by retention or on request'}"
    )


async def _groups(
    client: AsyncClient, source: Source, copied: Copied, wanted: _Wanted, problems: list[str]
) -> list[Row]:
    from api.kafka_import.positions import move_group

    if wanted.groups is None:
        return []
    names = await source.groups() if wanted.groups == _ALL else wanted.groups.split(",")
    rows: list[Row] = []
    for name in names:
        committed = await source.committed(name)
        if not committed and wanted.groups != _ALL:
            problems.append(f"group {name} has committed no offset of {wanted.topic} in Kafka")
        try:
            moved = await move_group(client, copied, wanted.into, name, committed)
        except RaftlogError as error:
            problems.append(str(error))
            continue
        rows += [
            {
                "group": each.group,
                "partition": each.partition,
                "kafka_offset": each.source,
                "offset": each.target,
                "state": each.state,
            }
            for each in moved
        ]
    return rows


def _show(result: _Result) -> None:
    if is_json():
        write_json({"partitions": result.partitions, "groups": result.groups})
    else:
        write_table(result.partitions)
        if result.groups:
            click.echo()
            write_table(result.groups)
    for found in result.problems:
        problem(found)
    if result.problems:
        raise click.exceptions.Exit(REFUSED)


@contextmanager
def _stopped(follows: bool) -> Iterator[asyncio.Event]:
    """Yield an event that a signal sets, if only a signal ends the command (``follows``); otherwise signals
    interrupt.
    """
    stopped, loop, signals = asyncio.Event(), asyncio.get_running_loop(), stop_signals() if follows else ()
    for number in signals:
        loop.add_signal_handler(number, stopped.set)
    try:
        yield stopped
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
            with suppress(ValueError):
                signal.signal(number, signal.default_int_handler)


@contextmanager
def _progress() -> Iterator[Progress]:
    """Show a counter of records with the rate on a terminal."""
    if not sys.stderr.isatty():
        yield lambda found: None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar
    from rich.progress import TextColumn, TimeElapsedColumn, TransferSpeedColumn

    from raftlog.client.bulk import size_of

    columns = (TextColumn("{task.fields[records]} records"), TransferSpeedColumn(), TimeElapsedColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task, total = bar.add_task("", total=None, records=0), 0

        def advance(found: Sequence[Found]) -> None:
            nonlocal total
            total += len(found)
            bar.update(task, advance=sum(size_of(each.record) for each in found), records=total)

        yield advance
