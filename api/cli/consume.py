"""The command ``consume``: prints messages of topics on standard output.

Decides: the partitions, the first position, and when a member of a group ends. Leaves to others: order and
end without a group (``message_source``), output of a message (``message_format``), finding leaders (the
client).
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Self

from api.cli.connection import RETRY_TIMEOUT, connected
from api.cli.imports import import_decoder
from api.cli.output import (
    DEFAULT_SERVER,
    ServerOption,
    errors_reported,
    is_json,
    note,
    options_checked,
    wrong_usage,
)
from api.cli.parameters import Argument, Option
from api.cli.positions import parse_position
from api.cli.tag_options import TagsAllOption, TagsNoneOption, TagsOption, selection_of
from raftlog.errors import UndecodableBatch
from raftlog.records.tags import TagSelection
from raftlog.types import TopicPartition
from raftlog.units import counted

if TYPE_CHECKING:
    from api.cli.message_format import Render
    from raftlog.client import Client
    from raftlog.client.consumer.faces import Consumer
    from raftlog.client.consumer.options import ConsumerSettings
    from raftlog.client.partition import AsyncPartition, Position, Undecodable
    from raftlog.wire.bodies import SkippedRange

LOOK = "200ms"  # longest wait for messages before the command checks whether it ends

PartitionOption = Annotated[
    int | None, Option("--partition", "-p", min=0, help="Only this partition.  [default: all]")
]
FromOption = Annotated[
    str,
    Option(
        "--from",
        metavar="POSITION",
        help="earliest, latest, an offset, -N for the last N of each partition, 10m for ten minutes ago, or "
        "a time such as 2026-01-31T12:00:00Z.",
    ),
]
ToOption = Annotated[str | None, Option("--to", metavar="POSITION", help="End before this offset or time.")]
LimitOption = Annotated[int | None, Option("--limit", "-n", min=1, help="End after this number of messages.")]
FormOption = Annotated[
    str | None,
    Option(
        "--format",
        metavar="FORMAT",
        help="value, json, or a text with %t (time) %T (topic) %p (partition) %o (offset) %k (key) "
        "%v (value) %h (headers) %s (size); -o json is --format json.  [default: value]",
        takes_bytes=True,
    ),
]
SkipOption = Annotated[
    bool,
    Option("--skip-undecodable", help="Skip stored batches that cannot be decoded, and count them."),
]


GroupOption = Annotated[
    str | None,
    Option(
        "--group",
        "-g",
        help="Consume as a member of this group, from its committed offsets on; --from, earliest or latest, "
        "is the start of partitions without a committed offset.",
        completes="groups",
    ),
]


DeliveryOption = Annotated[
    str | None,
    Option(
        "--delivery",
        metavar="HOW",
        help="With --group: at_least_once (the default) commits a message after it is printed, at_most_once "
        "commits it before.",
    ),
]


MissingOption = Annotated[
    str | None,
    Option(
        "--missing",
        metavar="HOW",
        help="With --group and --follow, for topics that do not exist: wait (the default) for them, or "
        "error, as without these options.",
    ),
]


PresetOption = Annotated[
    str | None,
    Option(
        "--preset",
        metavar="NAME",
        help="latency fetches small chunks; throughput fetches large ones, and waits for them with --follow.",
    ),
]


RackOption = Annotated[
    str | None,
    Option("--rack", metavar="RACK", help="Read from the replicas in this rack while they are in sync."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """The requested range of messages: up to ``end``, and with ``follow`` also new messages."""

    partitions: Sequence[tuple[str, int]]
    start: Position
    end: Position | None
    max_count: int | None
    follow: bool
    undecodable: Undecodable
    selection: TagSelection | None
    preset: str | None
    rack: str | None


def consume(
    topics: Annotated[list[str], Argument(metavar="TOPIC...", help="The topics' names.", completes="topics")],
    partition: PartitionOption = None,
    start: FromOption = "earliest",
    end: ToOption = None,
    max_count: LimitOption = None,
    follow: Annotated[bool, Option("--follow", "-f", help="Continue with new messages.")] = False,
    form: FormOption = None,
    skip_undecodable: SkipOption = False,
    group: GroupOption = None,
    delivery: DeliveryOption = None,
    missing: MissingOption = None,
    tags: TagsOption = None,
    tags_all: TagsAllOption = None,
    tags_none: TagsNoneOption = None,
    preset: PresetOption = None,
    rack: RackOption = None,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Print the messages of topics; with --follow also new messages.

    At a stored batch that cannot be decoded, the command ends with 1 after printing the messages before it.
    With --group several commands share the messages, and each message is committed once it is printed.

    \b
    Examples:
      raftlog consume orders --from -10
      raftlog consume orders payments --from 2h --to 90m --format '%t %T/%p:%o %v\\n'
      raftlog consume orders --follow --from latest --format '%t %p:%o %k %v\\n'
      raftlog consume orders --format json | raftlog produce copy --format json
      raftlog consume orders --group billing --follow
      raftlog consume orders --tags paid,refunded --tags-none test
    """
    form = _chosen_form(form)
    selection = selection_of(tags, tags_all, tags_none)
    _check_delivery(delivery, group)
    _check_missing(missing, group, follow)
    if group is not None:
        _check_group_options(partition, start, end, skip_undecodable)
        options = _options(start, delivery, missing, preset, selection)
        _print_as_member(server, rack, group, topics, max_count, follow, form, options)
        return
    first, last = _range(start, end, follow)
    with errors_reported():
        render = _renderer(form, topics, preset)
        with connected(server, rack) as client:
            found = {topic: [item.partition for item in client.topics.partitions(topic)] for topic in topics}
        wanted = _Wanted(
            partitions=_chosen(found, partition, {"--from": first, "--to": last}),
            start=first,
            end=last,
            max_count=max_count,
            follow=follow,
            undecodable="skip" if skip_undecodable else "fail",
            selection=selection,
            preset=preset,
            rack=rack,
        )
        _print_all(server, wanted, render)


def _chosen_form(form: str | None) -> str:
    if form is None:
        return "json" if is_json() else "value"
    if is_json() and form != "json":
        wrong_usage(f"-o json and --format {form} exclude each other; omit one")
    return form


def _renderer(form: str, topics: Sequence[str], preset: str | None) -> Render:
    """Check the options that no broker checks; return the function that formats messages."""
    from api.cli.message_format import renderer
    from raftlog.client.options import reader_preset

    with options_checked():
        reader_preset(preset)
    return renderer(form, topics)


def _options(
    start: str,
    delivery: str | None,
    missing: str | None,
    preset: str | None,
    selection: TagSelection | None,
) -> ConsumerSettings:
    """Return the settings of a group member."""
    wanted = TagSelection() if selection is None else selection
    return {
        "reset": start,
        "delivery": delivery or "at_least_once",
        "missing": missing or "wait",
        "preset": preset,
        "tags": wanted.any or None,
        "tags_all": wanted.all or None,
        "tags_none": wanted.none or None,
    }


def _print_all(server: str, wanted: _Wanted, render: Render) -> None:
    import_decoder()
    import asyncio  # after the client's import, so that asyncio does not import TLS

    try:
        asyncio.run(_print(server, wanted, render))
    except KeyboardInterrupt:
        if not wanted.follow:
            raise
    except UndecodableBatch as error:
        raise _with_remedy(error) from None


def _range(start: str, end: str | None, follow: bool) -> tuple[Position, Position | None]:
    if follow and end is not None:
        wrong_usage("--to and --follow exclude each other; omit one")
    return parse_position("--from", start), None if end is None else parse_position("--to", end)


def _print_as_member(
    server: str,
    rack: str | None,
    group: str,
    topics: Sequence[str],
    max_count: int | None,
    follow: bool,
    form: str,
    options: ConsumerSettings,
) -> None:
    with errors_reported(), connected(server, rack) as client:
        from api.cli.message_format import renderer

        with options_checked():
            consumer = client.consumer(group, topics, **options)
        _print_until_the_end(client, consumer, topics, max_count, follow, renderer(form, topics))


def _print_until_the_end(
    client: Client,
    consuming: Consumer,
    topics: Sequence[str],
    max_count: int | None,
    follow: bool,
    render: Render,
) -> None:
    """Print messages until the current ends of the topics, ``max_count`` messages, or a signal.

    With ``follow`` the printing continues beyond the ends. Each message is committed after it was written, so
    a command that is killed prints some messages again in its next run. With the delivery ``at_most_once``
    each message is committed before it is written, so a partly written message is lost.
    """
    from raftlog.client.worker.run import stopped_by_signals

    ends = {} if follow else _ends(client, topics)
    stopping = threading.Event()
    left = max_count
    with stopped_by_signals(stopping.set, asked=True), consuming as consumer:
        while not stopping.is_set():
            message = consumer.poll(LOOK)  # acknowledges the previous message, which is written
            if message is not None:
                sys.stdout.buffer.write(render(message))
                sys.stdout.buffer.flush()
                left = None if left is None else left - 1
                if left == 0:
                    return
            elif not follow and _is_at_end(consumer, ends):
                return


def _ends(client: Client, topics: Sequence[str]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, item.partition): client.partition(topic, item.partition).offset_at("latest")
        for topic in topics
        for item in client.topics.partitions(topic)
    }


def _is_at_end(consumer: Consumer, ends: dict[TopicPartition, int]) -> bool:
    """Return whether this member has printed all messages below ``ends`` in its partitions."""
    positions = consumer.positions
    return consumer.is_assigned and all(
        target in positions and positions[target] >= ends.get(target, 0) for target in consumer.assignment
    )


async def _print(server: str, wanted: _Wanted, render: Render) -> None:
    from api.cli.message_source import followed, present
    from raftlog.aio import Client

    async with Client(server, retry_timeout=RETRY_TIMEOUT, rack=wanted.rack) as client:
        partitions = [client.partition(topic, number) for topic, number in wanted.partitions]
        if wanted.follow:
            source = followed(partitions, wanted.start, wanted.undecodable, wanted.selection, wanted.preset)
        else:
            source = present(
                partitions, wanted.start, wanted.end, wanted.undecodable, wanted.selection, wanted.preset
            )
        left = wanted.max_count
        with _Skips() as skips:
            async with aclosing(source) as pieces:
                async for partition, messages, skipped in pieces:
                    shown = messages if left is None else messages[:left]
                    sys.stdout.buffer.write(b"".join([render(message) for message in shown]))
                    sys.stdout.buffer.flush()
                    if left is not None:
                        left -= len(shown)
                    if left == 0:
                        skips.tell(partition, [lost for lost in skipped if lost.offset < shown[-1].offset])
                        return
                    skips.tell(partition, skipped)


class _Skips:
    """Reports skipped offsets when they are found, and their total at the end."""

    def __init__(self) -> None:
        self._counts: list[int] = []

    def tell(self, partition: AsyncPartition, skipped: Sequence[SkippedRange]) -> None:
        for lost in skipped:
            self._counts.append(lost.next_offset - lost.offset)
            note(
                f"skipped offsets {lost.offset} to {lost.next_offset - 1} of "
                f"{partition.topic}/{partition.number}: they cannot be decoded"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._counts:
            note(f"skipped {counted(sum(self._counts), 'offset')} that cannot be decoded")


def _with_remedy(error: UndecodableBatch) -> UndecodableBatch:
    """Return the error; its message then names the options that help."""
    topic, partition, offset, following = (
        error.details[name] for name in ("topic", "partition", "offset", "next_offset")
    )
    return UndecodableBatch(
        f"the batch of {topic}/{partition} with offset {offset} cannot be decoded ({error.__cause__}); "
        f"continue after it with --partition {partition} --from {following}, or add --skip-undecodable",
        **error.details,
    )


def _check_delivery(delivery: str | None, group: str | None) -> None:
    if delivery is not None and group is None:
        wrong_usage("--delivery needs --group: without a group no offset is committed; omit --delivery")
    if delivery == "exactly_once":
        wrong_usage(
            "--delivery exactly_once: standard output cannot be in a transaction; choose at_least_once or "
            "at_most_once, or use the batches of client.consumer(...), or Spark"
        )


def _check_missing(missing: str | None, group: str | None, follow: bool) -> None:
    if missing is not None and (group is None or not follow):
        wrong_usage(
            "--missing needs --group and --follow: otherwise a missing topic is an error; omit --missing"
        )


def _check_group_options(partition: int | None, start: str, end: str | None, skip_undecodable: bool) -> None:
    """Refuse options that conflict with ``--group``: a group gives its members their partitions and
    positions.
    """
    if start not in ("earliest", "latest"):
        wrong_usage(
            f"--from {start} and --group exclude each other; use earliest or latest for partitions without a "
            "committed offset, or move the group with `raftlog group reset`"
        )
    for option, is_given in (
        ("--partition", partition is not None),
        ("--to", end is not None),
        ("--skip-undecodable", skip_undecodable),
    ):
        if is_given:
            wrong_usage(f"{option} and --group exclude each other; omit one")


def _chosen(
    found: dict[str, list[int]], partition: int | None, positions: dict[str, Position | None]
) -> list[tuple[str, int]]:
    if partition is not None:
        return [(topic, partition) for topic in found]
    for option, position in positions.items():
        for topic, numbers in found.items():
            if len(numbers) > 1 and isinstance(position, int) and position >= 0:
                wrong_usage(
                    f"{option} {position} is one offset, but {topic} has {len(numbers)} partitions; "
                    "choose one with --partition"
                )
    return [(topic, number) for topic, numbers in found.items() for number in numbers]
