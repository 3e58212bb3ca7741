"""Commands about consumer groups: ``group list``, ``describe``, ``rebalances``, ``reset`` and ``delete``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import click

from api.cli.connection import connected, reading
from api.cli.output import (
    DEFAULT_SERVER,
    ServerOption,
    done,
    errors_reported,
    is_json,
    note,
    show,
    write_json,
    write_table,
    wrong_usage,
)
from api.cli.parameters import Argument, Option
from api.cli.positions import parse_position
from api.cli.samples import group_lags
from api.cli.tables import Row, time_text

if TYPE_CHECKING:
    from raftlog.wire.groups import GroupDescription, GroupOffset, PendingOffset, TopicPartitions

_OFFSETS = ("topic", "partition", "consumed", "committed", "end", "lag", "lag_seconds")
GroupArgument = Annotated[str, Argument(help="The group's name.", completes="groups")]


def list_all(server: ServerOption = DEFAULT_SERVER) -> None:
    """List the consumer groups.

    \b
    Example:
      raftlog group list
    """
    with errors_reported(), reading(server) as ask:
        import msgspec

        groups = ask(ask.groups.list())
        lags = group_lags(ask.live_urls()) if groups else {}
        rows = [{**msgspec.structs.asdict(group), "lag": lags.get(group.group)} for group in groups]
        show(rows, ("group", "state", "members", "lag", "coordinator"), empty="there are no groups")


def describe(group: GroupArgument, server: ServerOption = DEFAULT_SERVER) -> None:
    """Show a group's members, their partitions, and its lag.

    \b
    Example:
      raftlog group describe billing
    """
    with errors_reported(), reading(server) as ask:
        import msgspec

        found, offsets = ask(ask.groups.describe(group)), ask(ask.groups.offsets(group))
        pending = ask(ask.groups.pending_offsets(group))
        if is_json():
            write_json(
                {
                    "group": msgspec.json.decode(msgspec.json.encode(found)),  # the members' metadata is JSON
                    "offsets": [msgspec.structs.asdict(offset) for offset in offsets],
                    "pending": [msgspec.structs.asdict(offset) for offset in pending],
                }
            )
            return
        write_table([_summary(found)], ("group", "state", "members", "lag", "lag_seconds", "coordinator"))
        if found.members:
            click.echo()
            write_table(_members(found), ("member", "leader", "client", "partitions"))
        if offsets:
            click.echo()
            write_table([_offset(offset) for offset in offsets], _OFFSETS)
        if pending:
            click.echo()
            write_table([_pending(offset) for offset in pending])


def rebalances(group: GroupArgument, server: ServerOption = DEFAULT_SERVER) -> None:
    """Show a group's newest rebalances: their times, reasons and durations.

    \b
    Example:
      raftlog group rebalances billing
    """
    with errors_reported(), reading(server) as ask:
        import msgspec

        rows = [msgspec.structs.asdict(each) for each in ask(ask.groups.rebalances(group))]
        timed = [{**row, "began_at": time_text(row["began_at"])} for row in rows]
        show(timed, value=rows, empty="the group has had no rebalance")


def reset(
    group: GroupArgument,
    to: Annotated[
        str | None,
        Option(
            "--to", help="earliest, latest, an offset, -N for the last N, 10m for ten minutes ago, or a time."
        ),
    ] = None,
    shift: Annotated[
        int | None, Option("--shift", help="Move by this number of offsets; negative moves back.")
    ] = None,
    topic: Annotated[
        list[str] | None,
        Option(
            "--topic",
            "-t",
            help="A topic; repeatable.  [default: all topics with offsets]",
            completes="topics",
        ),
    ] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Only show the changes.")] = False,
    force: Annotated[bool, Option("--force", help="Reset even if the group has members.")] = False,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Move the committed offsets of a group; --dry-run only shows the changes.

    \b
    Examples:
      raftlog group reset billing --to earliest --dry-run
      raftlog group reset billing --topic orders --to 2026-01-31T12:00:00Z
      raftlog group reset billing --shift -100
    """
    if (to is None) == (shift is None):
        wrong_usage("no new position is given; use either --to or --shift")
    position = None if to is None else parse_position("--to", to)
    with errors_reported(changing=not dry_run), connected(server) as client:
        import msgspec

        changes = client.groups.reset(
            group, position, shift=shift, topics=topic or None, force=force, dry_run=dry_run
        )
        show([msgspec.structs.asdict(change) for change in changes])
        if dry_run:
            note("nothing was changed")


def delete(group: GroupArgument, server: ServerOption = DEFAULT_SERVER) -> None:
    """Delete a group without members, and its committed offsets.

    \b
    Example:
      raftlog group delete billing
    """
    with errors_reported(changing=True), connected(server) as client:
        client.groups.delete(group)
        done(f"deleted {group}", deleted=group)


def _summary(group: GroupDescription) -> Row:
    return {
        "group": group.group,
        "state": group.state,
        "generation": group.generation,
        "strategy": group.strategy,
        "coordinator": group.coordinator,
        "members": len(group.members),
        "lag": group.lag,
        "lag_seconds": group.lag_seconds,
    }


def _members(group: GroupDescription) -> Sequence[Row]:
    return [
        {
            "member": member.member_id,
            "leader": "yes" if member.member_id == group.leader else "",
            "client": member.client,
            "instance": member.instance_id,
            "topics": ", ".join(member.topics),
            "partitions": _partitions(member.assignment),
        }
        for member in group.members
    ]


def _partitions(assignment: Sequence[TopicPartitions]) -> str:
    return " ".join(f"{each.topic}/{number}" for each in assignment for number in each.partitions)


def _offset(offset: GroupOffset) -> Row:
    return {
        "topic": offset.topic,
        "partition": offset.partition,
        "consumed": offset.last_consumed_offset,
        "committed": offset.committed_offset,
        "end": offset.high_watermark,
        "lag": offset.lag,
        "lag_seconds": offset.lag_seconds,
        "committed_at": time_text(offset.timestamp),
    }


def _pending(offset: PendingOffset) -> Row:
    return {
        "topic": offset.topic,
        "partition": offset.partition,
        "pending": offset.offset,
        "transaction": offset.transaction,
    }
