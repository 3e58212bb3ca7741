"""Commands about single partitions: leadership, replicas, unsafe recovery."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, NoReturn

import click

from api.cli.connection import connected, reading
from api.cli.output import (
    DEFAULT_SERVER,
    REFUSED,
    ServerOption,
    errors_reported,
    is_json,
    note,
    options_checked,
    problem,
    show,
    wrong_usage,
)
from api.cli.parameters import Argument, Option
from api.cli.tables import Row
from raftlog.errors import Conflict

if TYPE_CHECKING:
    from raftlog.wire.bodies import PartitionDescription

_COLUMNS = ("partition", "leader", "replicas", "learners", "in_sync", "target", "state")
TopicArgument = Annotated[str, Argument(help="The topic's name.", completes="topics")]
PartitionArgument = Annotated[int, Argument(min=0, help="The partition's number.")]
BrokerArgument = Annotated[int, Argument(min=1, help="The broker's id.")]
WaitOption = Annotated[
    str | None,
    Option("--wait", metavar="TIME", help="Longest wait for the end of the move, such as 60s."),
]


def list_all(topic: TopicArgument, server: ServerOption = DEFAULT_SERVER) -> None:
    """List a topic's partitions with leaders, replicas and moves.

    \b
    Example:
      raftlog partition list orders
    """
    with errors_reported(), reading(server) as ask:
        _show(ask(ask.topics.partitions(topic)))


def transfer_leadership(
    topic: TopicArgument,
    partition: PartitionArgument,
    to: Annotated[int | None, Option(min=1, help="The new leader's id.  [default: the best replica]")] = None,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Transfer a partition's leadership, and wait until the new leader leads.

    \b
    Example:
      raftlog partition transfer-leadership orders 0 --to 2
    """
    with errors_reported(changing=True), connected(server) as client:
        import msgspec

        moved = client.partitions.transfer_leadership(topic, partition, to=to)
        show([msgspec.structs.asdict(moved)], single=True)


def add_replica(
    topic: TopicArgument,
    partition: PartitionArgument,
    broker: BrokerArgument,
    wait: WaitOption = None,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Add a replica of a partition. The replica votes when it has caught up.

    \b
    Example:
      raftlog partition add-replica orders 0 4 --wait 60s
    """
    with errors_reported(changing=True), connected(server) as client, options_checked():
        _show([client.partitions.add_replica(topic, partition, broker, wait=wait)], single=True)


def remove_replica(
    topic: TopicArgument,
    partition: PartitionArgument,
    broker: BrokerArgument,
    wait: WaitOption = None,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Remove a replica of a partition. Its files are deleted when the removal is committed.

    \b
    Example:
      raftlog partition remove-replica orders 0 1
    """
    with errors_reported(changing=True), connected(server) as client, options_checked():
        _show([client.partitions.remove_replica(topic, partition, broker, wait=wait)], single=True)


def set_replicas(
    topic: TopicArgument,
    partition: PartitionArgument,
    brokers: Annotated[
        str, Argument(metavar="BROKERS", help="Ids separated by commas, the preferred leader first.")
    ],
    wait: WaitOption = None,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Set all replicas of a partition. Replaces an incomplete move.

    \b
    Example:
      raftlog partition set-replicas orders 0 2,3,4 --wait 60s
    """
    wanted = [_broker_id(text) for text in brokers.split(",")]
    with errors_reported(changing=True), connected(server) as client, options_checked():
        _show([client.partitions.set_replicas(topic, partition, wanted, wait=wait)], single=True)


def delete_before(
    topic: TopicArgument,
    partition: PartitionArgument,
    offset: Annotated[int, Option("--offset", min=0, help="The oldest offset to keep.")],
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Delete the records of a partition below an offset.

    Readers do not get these records any more; disk space is freed by whole segments at the next check of
    retention. The command can be repeated. It shows the log start offset, which may be above the given
    offset.

    \b
    Example:
      raftlog partition delete-before orders 0 --offset 100
    """
    with errors_reported(changing=True), connected(server) as client:
        import msgspec

        deleted = client.partitions.delete_before(topic, partition, offset)
        show([msgspec.structs.asdict(deleted)], single=True)


def set_archived(
    topic: TopicArgument,
    partition: PartitionArgument,
    offset: Annotated[int, Option("--offset", min=0, help="The first offset that is not archived.")],
    allow_lower: Annotated[
        bool, Option("--allow-lower", help="Also lower the offset, for an archive that has lost files.")
    ] = False,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Set up to which offset a partition is archived.

    Retention of a topic with retention.archive.required=true deletes only records below this offset. The
    archive sink of Spark and `raftlog archive report` set the offset themselves.

    \b
    Example:
      raftlog partition set-archived orders 0 --offset 100
    """
    with errors_reported(changing=True), connected(server) as client:
        import msgspec

        archived = client.partitions.set_archived(topic, partition, offset, allow_lower=allow_lower)
        show([msgspec.structs.asdict(archived)], single=True)


def unsafe_recover(
    topic: TopicArgument,
    partition: PartitionArgument,
    confirm: Annotated[
        str | None, Option(metavar="PHRASE", help="The phrase at the end of the estimate.")
    ] = None,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Recover a partition whose majority is permanently lost. Shows an estimate and asks for its phrase.

    \b
    Example:
      raftlog partition unsafe-recover orders 0
    """
    with errors_reported(changing=True), connected(server) as client:
        try:
            recovered = client.partitions.unsafe_recover(topic, partition, confirm=confirm)
        except Conflict as estimate:
            phrase = estimate.details.get("confirm")
            if confirm is not None or not isinstance(phrase, str) or not sys.stdin.isatty():
                raise
            note(str(estimate))
            typed = click.prompt("Type the phrase to continue", err=True)
            if typed != phrase:
                _refused("the typed text is not the phrase; nothing was changed")
            recovered = client.partitions.unsafe_recover(topic, partition, confirm=phrase)
        _show([recovered], single=True)


def _refused(text: str) -> NoReturn:
    note(text)
    raise click.exceptions.Exit(REFUSED)


def _broker_id(text: str) -> int:
    if not (text.strip().isascii() and text.strip().isdigit()):
        wrong_usage(f"{text!r} is not a broker's id; write for instance 2,3,4")
    return int(text)


def _show(partitions: list[PartitionDescription], *, single: bool = False) -> None:
    import msgspec

    value = [msgspec.to_builtins(partition) for partition in partitions]
    show([_row(partition) for partition in partitions], _COLUMNS, value=value[0] if single else value)
    if is_json():
        return
    for partition in partitions:
        for replica in partition.offline:
            where = f"partition {partition.partition} on broker {replica.broker_id}"
            problem(f"{where} is offline: {replica.reason}")


def _row(partition: PartitionDescription) -> Row:
    move = partition.reassignment
    return {
        "partition": partition.partition,
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "replicas": partition.replicas,
        "learners": partition.learners,
        "in_sync": partition.in_sync,
        "high_watermark": partition.high_watermark,
        "target": [] if move is None else move.target,
        "state": _waiting(partition) or _state(partition),
    }


def _waiting(partition: PartitionDescription) -> str:
    """Return why the partition has no leader, or why a replica has no vote; empty if there is no such
    problem.
    """
    parts = [] if partition.leader else ["no leader"]
    parts += [f"rejoining {partition.rejoining}"] if partition.rejoining else []
    parts += [f"waits for {partition.awaited}"] if partition.awaited else []
    return ", ".join(parts)


def _state(partition: PartitionDescription) -> str:
    """Return the progress of a partition's move; if there is no move, whether the partition accepts
    records.
    """
    move = partition.reassignment
    if move is None:
        return "settled" if partition.state == "active" else partition.state
    return move.state if move.caught_up_percent is None else f"{move.state} {move.caught_up_percent}%"
