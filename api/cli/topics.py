"""Commands about topics: create, list, describe, delete them, change settings, delete or archive records."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Final

import click

from api.cli.connection import connected, reading
from api.cli.output import (
    DEFAULT_SERVER,
    REFUSED,
    ServerOption,
    done,
    errors_reported,
    is_json,
    note,
    options_checked,
    show,
    write_json,
    write_table,
    wrong_usage,
)
from api.cli.parameters import Argument, Option
from api.cli.samples import topic_sizes
from api.cli.tables import Row, setting_text
from raftlog.units import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from raftlog.wire.bodies import PartitionsDecommissioned, SettingValue, TopicDescription
    from raftlog.wire.dependents import TopicDependents

GROUPS_SHOWN: Final = 20  # before the prompt for the deletion

_NONE = "there are no topics; create one with `raftlog topic create NAME`"
_TOPICS = ("name", "partitions", "replication_factor", "topic_id", "internal")
_LISTED = ("name", "partitions", "replication_factor", "size_bytes")
_PARTITIONS = (
    "partition",
    "leader",
    "replicas",
    "in_sync",
    "log_start_offset",
    "high_watermark",
    "size_bytes",
)

NameArgument = Annotated[str, Argument(help="The topic's name.", completes="topics")]
ConfigOption = Annotated[
    list[str] | None,
    Option(
        "--config",
        "--set",
        "-c",
        metavar="KEY=VALUE",
        help="A setting, such as retention.ms=14d; repeatable.",
    ),
]
PresetOption = Annotated[
    str | None,
    Option("--preset", metavar="NAME", help="latency or throughput; --config takes precedence."),
]


def create(
    name: NameArgument,
    partitions: Annotated[int, Option("--partitions", "-P", min=1, help="Number of partitions.")] = 1,
    replication_factor: Annotated[
        int | None,
        Option(
            "--replication-factor",
            "-r",
            min=1,
            help="Replicas of each partition.  [default: 3, or 1 with fewer than three brokers]",
        ),
    ] = None,
    config: ConfigOption = None,
    preset: PresetOption = None,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Create a topic.

    \b
    Examples:
      raftlog topic create orders --partitions 3 --config retention.ms=1d
      raftlog topic create clicks --preset throughput
    """
    wanted = _settings(config)
    with errors_reported(changing=True), connected(server) as client, options_checked():
        made = client.topics.create(
            name, partitions=partitions, replication_factor=replication_factor, config=wanted, preset=preset
        )
        _show_topic(made)


def list_all(
    pattern: Annotated[str, Argument(help="A pattern for names: * matches any text, ? one character.")] = "*",
    internal: Annotated[bool, Option("--internal", help="Also list internal topics.")] = False,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """List all topics, or those whose names match a pattern.

    \b
    Examples:
      raftlog topic list
      raftlog topic list 'orders-*'
    """
    with errors_reported(), reading(server) as ask:
        topics = [topic for topic in ask(ask.topics.list()) if internal or not topic.internal]
        chosen = [topic for topic in topics if fnmatchcase(topic.name, pattern)]
        sizes = topic_sizes(ask.live_urls(), chosen) if chosen else {}
        rows = [{**_topic_row(topic), "size_bytes": sizes.get(topic.name)} for topic in chosen]
        empty = f"no topic matches {pattern}" if topics else _NONE
        show(rows, _LISTED, value=_with_sizes(chosen, sizes), empty=empty)


def describe(name: NameArgument, server: ServerOption = DEFAULT_SERVER) -> None:
    """Show a topic's partitions (leaders, replicas, offsets) and its settings.

    \b
    Example:
      raftlog topic describe orders
    """
    with errors_reported(), reading(server) as ask:
        import msgspec

        topic = ask(ask.topics.describe(name))
        partitions = [msgspec.structs.asdict(each) for each in ask(ask.topics.partitions(name))]
        if is_json():
            write_json({"topic": msgspec.structs.asdict(topic), "partitions": partitions})
            return
        _show_topic(topic)
        click.echo()
        write_table(partitions, _PARTITIONS)
        click.echo()
        write_table(_setting_rows(topic.config))


def alter(
    name: NameArgument,
    config: ConfigOption = None,
    reset: Annotated[
        list[str] | None,
        Option("--reset", metavar="KEY", help="A setting to reset to its default; repeatable."),
    ] = None,
    preset: PresetOption = None,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Change a topic's settings and show the result.

    \b
    Example:
      raftlog topic alter orders --config retention.ms=1h --reset segment.ms
    """
    changes: dict[str, int | str | None] = {**_settings(config), **dict.fromkeys(reset or (), None)}
    if not changes and preset is None:
        wrong_usage("nothing to change; add --config KEY=VALUE, --reset KEY or --preset NAME")
    with errors_reported(changing=True), connected(server) as client, options_checked():
        altered = client.topics.alter(name, config=changes, preset=preset)
        show(_setting_rows(altered.config), value=altered)


def add_partitions(
    name: NameArgument,
    count: Annotated[int, Argument(min=1, help="The number of partitions to add.")],
    expected: Annotated[
        int | None,
        Option(min=1, help="The number of partitions before.  [default: the current number]"),
    ] = None,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Add partitions to a topic. Existing records stay in their partitions.

    New records use all partitions, so most keys go to another partition afterwards. Consumer groups
    rebalance, and read the new partitions from their start. With --expected the command can be repeated: it
    changes nothing if the partitions are added already.

    \b
    Example:
      raftlog topic add-partitions orders 2 --expected 3
    """
    with errors_reported(changing=True), connected(server) as client:
        added = client.topics.add_partitions(name, count, expected=expected)
        for warning in added.warnings:
            note(f"warning: {warning}")
        _show_topic(added)


def decommission_partitions(
    name: NameArgument,
    count: Annotated[
        int | None, Option("--count", min=1, help="Number of last partitions to decommission.")
    ] = None,
    partitions: Annotated[
        list[int] | None,
        Option("--partition", "-p", min=0, help="One of the last partitions; repeatable."),
    ] = None,
    expected: Annotated[
        int | None,
        Option(min=1, help="The number of writable partitions before.  [default: the current number]"),
    ] = None,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Stop producing to the last partitions of a topic, and remove them once their records are deleted.

    Consumers continue to read. Once retention has deleted all records of the last partition, the partition is
    removed, and groups rebalance. New records use the other partitions, so most keys go to another partition
    afterwards. Until the removal, recommission-partitions makes the partition writable again.

    \b
    Example:
      raftlog topic decommission-partitions orders --partition 2
      raftlog topic decommission-partitions orders --count 1 --expected 3
    """
    if (count is None) == (not partitions):
        wrong_usage("no partitions are given; use either --partition N, repeatable, or --count N")
    with errors_reported(changing=True), connected(server) as client:
        changed = client.topics.decommission_partitions(
            name, partitions or (), count=count, expected=expected
        )
        _show_decommissioned(changed)


def recommission_partitions(
    name: NameArgument,
    partitions: Annotated[
        list[int] | None,
        Option("--partition", "-p", min=0, help="The number of a partition; repeatable.  [default: all]"),
    ] = None,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Let decommissioned partitions of a topic take records again.

    The partitions keep the records that retention has not deleted. A removed partition does not return:
    add-partitions creates a new one.

    \b
    Example:
      raftlog topic recommission-partitions orders
    """
    with errors_reported(changing=True), connected(server) as client:
        _show_decommissioned(client.topics.recommission_partitions(name, partitions or ()))


def delete(
    name: NameArgument,
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Delete a topic and all its records. Asks for its name as confirmation.

    Before it asks, the command shows the groups and queues that read the topic, and its schedules and delayed
    messages, which will fail.

    \b
    Example:
      raftlog topic delete orders --yes
    """
    if not yes and not sys.stdin.isatty():
        wrong_usage(
            "the deletion needs the topic's name as confirmation, but there is no terminal; add --yes"
        )
    with errors_reported(changing=True), connected(server) as client:
        if not yes:
            _show_dependents(client.topics.dependents(name))  # a misspelt name fails before the prompt
            typed = click.prompt(
                f"All records of {name} will be deleted. Type its name to delete it", err=True
            )
            if typed != name:
                note(f"{typed} is not {name}; nothing was deleted")
                raise click.exceptions.Exit(REFUSED)
        client.topics.delete(name)
        done(f"deleted {name}", deleted=name)


def _show_dependents(found: TopicDependents) -> None:
    for each in found.groups[:GROUPS_SHOWN]:
        what = "queue" if each.queue else "group"
        jobs = f", {counted(each.open_jobs, 'open job')}" if each.queue else ""
        letters = f", dead letters in {each.dead_letter_topic}" if each.dead_letter_topic else ""
        members, partitions = counted(each.members, "member"), counted(each.partitions, "partition")
        note(f"{what} {each.group}: {members}, offsets in {partitions}{jobs}{letters}")
    if found.group_count > GROUPS_SHOWN:
        note(f"and {counted(found.group_count - GROUPS_SHOWN, 'other group')}")
    if found.schedules:
        note(f"{counted(found.schedules, 'schedule')} will fail")
    if found.delayed or found.delayed_failed:
        lost = f"{found.delayed} pending and {found.delayed_failed} failed"
        note(f"delayed messages will be lost: {lost}")


def _settings(pairs: list[str] | None) -> dict[str, int | str]:
    found: dict[str, int | str] = {}
    for pair in pairs or ():
        key, separator, value = pair.partition("=")
        if not separator or not key:
            wrong_usage(f"--config {pair!r} is not KEY=VALUE; write for instance --config retention.ms=14d")
        found[key] = value
    return found


def _topic_row(topic: TopicDescription) -> Row:
    return {column: getattr(topic, column) for column in _TOPICS}


def _with_sizes(topics: Sequence[TopicDescription], sizes: Mapping[str, int]) -> list[Row]:
    import msgspec

    return [{**msgspec.structs.asdict(topic), "size_bytes": sizes.get(topic.name)} for topic in topics]


def _show_topic(topic: TopicDescription) -> None:
    import msgspec

    show([_topic_row(topic)], _TOPICS[:-1], value=msgspec.structs.asdict(topic))


def _show_decommissioned(topic: PartitionsDecommissioned) -> None:
    import msgspec

    for warning in topic.warnings:
        note(f"warning: {warning}")
    row = msgspec.structs.asdict(topic)
    show([row], ("name", "partitions", "decommissioned"), single=True)


def _setting_rows(config: Mapping[str, SettingValue]) -> list[dict[str, object]]:
    return [{"setting": name, "value": setting_text(name, value)} for name, value in config.items()]
