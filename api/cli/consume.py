"""``consume``: messages of a topic on standard output.

Decides: which partitions are read, and from where. Leaves to others: in which order and to which end
(``message_source``), how a message looks (``message_format``), finding leaders (the client).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import aclosing
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Self

import typer

from api.cli.connection import RETRY_TIMEOUT, connected
from api.cli.output import DEFAULT_SERVER, ServerOption, errors_reported, note, wrong_usage
from raftlog.errors import UndecodableBatch

if TYPE_CHECKING:
    from api.cli.message_format import Render
    from raftlog.client.partition import AsyncPartition, Position, Undecodable
    from raftlog.wire.bodies import SkippedRange


def consume(
    topic: Annotated[str, typer.Argument(help="The topic's name.")],
    partition: Annotated[int | None, typer.Option(min=0, help="Only this partition.  [default: all]")] = None,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="POSITION",
            help="earliest, latest, an offset, -N for the last N of each partition, or a time such as "
            "2026-01-31T12:00:00Z.",
        ),
    ] = "earliest",
    max_count: Annotated[int | None, typer.Option("--max", min=1, help="End after so many messages.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes in.")] = False,
    form: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="value, json, or a text with %t (time) %p (partition) %o (offset) %k (key) %v (value) "
            "%h (headers) %s (size).",
        ),
    ] = "value",
    skip_undecodable: Annotated[
        bool,
        typer.Option(
            "--skip-undecodable", help="Go on behind stored batches that cannot be decoded, and count them."
        ),
    ] = False,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Print the messages of a topic: what is there, or with --follow also what comes.

    Ends with 1 at a stored batch that cannot be decoded, behind the messages that precede it.

    \b
    Examples:
      raftlog consume orders --from -10
      raftlog consume orders --follow --from latest --format '%t %p:%o %k %v\\n'
      raftlog consume orders --format json | raftlog produce copy --format json
    """
    position = _position(start)
    with errors_reported():
        import asyncio

        from api.cli.message_format import renderer

        render = renderer(form)
        with connected(server) as client:
            found = [item.partition for item in client.topics.partitions(topic)]
        numbers = _chosen(topic, found, partition, position)
        try:
            asyncio.run(_print(server, topic, numbers, position, max_count, follow, skip_undecodable, render))
        except KeyboardInterrupt:
            if not follow:
                raise
        except UndecodableBatch as error:
            raise _with_remedy(error) from None


async def _print(
    server: str,
    topic: str,
    numbers: Sequence[int],
    position: Position,
    max_count: int | None,
    follow: bool,
    skip_undecodable: bool,
    render: Render,
) -> None:
    from api.cli.message_source import followed, present
    from raftlog.aio import Client

    undecodable: Undecodable = "skip" if skip_undecodable else "fail"
    async with Client(server, retry_timeout=RETRY_TIMEOUT) as client:
        partitions = [client.partition(topic, number) for number in numbers]
        source = (followed if follow else present)(partitions, position, undecodable)
        left = max_count
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
    """Says which offsets were skipped, as they are met, and at the end how many."""

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
            note(f"skipped {sum(self._counts)} offsets that cannot be decoded")


def _with_remedy(error: UndecodableBatch) -> UndecodableBatch:
    """The same error with the options that help."""
    topic, partition, offset, following = (
        error.details[name] for name in ("topic", "partition", "offset", "next_offset")
    )
    return UndecodableBatch(
        f"the batch of {topic}/{partition} with offset {offset} cannot be decoded ({error.__cause__}); go on "
        f"behind it with --partition {partition} --from {following}, or add --skip-undecodable",
        **error.details,
    )


def _chosen(topic: str, found: Sequence[int], partition: int | None, position: Position) -> Sequence[int]:
    if partition is None:
        if len(found) > 1 and isinstance(position, int) and position >= 0:
            wrong_usage(
                f"--from {position} is an offset, and {topic} has {len(found)} partitions; add --partition"
            )
        return found
    return [partition]


def _position(text: str) -> Position:
    if text in ("earliest", "latest"):
        return text
    if text.removeprefix("-").isdecimal() and text.isascii():
        return int(text)
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        wrong_usage(
            f"--from {text!r} is no position; use earliest, latest, an offset, -N for the last N, "
            "or a time such as 2026-01-31T12:00:00Z"
        )
    if when.tzinfo is None:
        wrong_usage(f"--from {text!r} has no time zone; write {when.isoformat()}Z for UTC")
    return when
