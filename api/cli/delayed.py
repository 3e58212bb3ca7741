"""Commands about delayed messages: ``delayed send``, ``list``, ``describe`` and others."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

from click.exceptions import Exit

from api.cli.connection import connected
from api.cli.output import (
    DEFAULT_SERVER,
    REFUSED,
    ServerOption,
    done,
    errors_reported,
    is_json,
    note,
    options_checked,
    printed,
    show,
    write_json,
    wrong_usage,
)
from api.cli.parameters import Argument, Option
from api.cli.tables import Row, time_text

if TYPE_CHECKING:
    from raftlog.wire.delays import DelayedMessage

_COLUMNS = ("id", "topic", "deliver_at", "state", "reason")
IdArgument = Annotated[str, Argument(metavar="ID", help="The id of a delayed message.")]
DelayOption = Annotated[str | None, Option("--delay", help="Time until the delivery, such as 30m.")]
DeliverAtOption = Annotated[
    str | None,
    Option("--deliver-at", metavar="TIME", help="Time of the delivery, such as 2026-01-01T00:00:00Z."),
]


def send(
    topic: Annotated[str, Argument(help="The topic's name.", completes="topics")],
    value: Annotated[str, Argument(help="The value; - is all of standard input.")],
    delay: DelayOption = None,
    deliver_at: DeliverAtOption = None,
    key: Annotated[str | None, Option("--key", "-k", help="The key.")] = None,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Send one record that is stored in its topic at a later time; prints its id.

    \b
    Examples:
      raftlog delayed send orders check --key o1 --delay 30m
      raftlog delayed send orders check --deliver-at 2026-01-01T00:00:00Z
    """
    when = _time(delay, deliver_at)
    content = sys.stdin.buffer.read() if value == "-" else value.encode()
    with errors_reported(changing=True), connected(server) as client, options_checked():
        receipt = client.delayed.send(topic, content, delay=delay, deliver_at=when, key=key)
        due_ms = receipt.deliver_at_ms
        if not is_json():
            note(f"due at {time_text(due_ms)}, for partition {receipt.partition}")
        printed(receipt.id, delayed_id=receipt.id, deliver_at=due_ms, partition=receipt.partition)


def list_all(
    topic: Annotated[
        str | None, Option("--topic", help="Only messages for this topic.", completes="topics")
    ] = None,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """List the messages that are not in their topics yet.

    \b
    Example:
      raftlog delayed list --topic orders
    """
    with errors_reported(), connected(server) as client:
        import msgspec

        found = client.delayed.list(topic)
        rows = [_row(one) for one in found]
        show(rows, _COLUMNS, value=msgspec.to_builtins(found), empty="there are no delayed messages")


def describe(id_: IdArgument, server: ServerOption = DEFAULT_SERVER) -> None:
    """Show one delayed message with its record, as JSON.

    \b
    Example:
      raftlog delayed describe 0003a1b2c3d4e5f60718293a4b5c
    """
    with errors_reported(), connected(server) as client:
        import msgspec

        write_json(msgspec.json.decode(msgspec.json.encode(client.delayed.describe(id_))))


def reschedule(
    id_: IdArgument,
    delay: DelayOption = None,
    deliver_at: DeliverAtOption = None,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Give a delayed message another time; a failed message is tried again.

    \b
    Example:
      raftlog delayed reschedule 0003a1b2c3d4e5f60718293a4b5c --delay 1h
    """
    when = _time(delay, deliver_at)
    with errors_reported(changing=True), connected(server) as client, options_checked():
        found = client.delayed.reschedule(id_, delay=delay, deliver_at=when)
        done(f"due at {time_text(found.deliver_at)}", delayed_id=id_, deliver_at=found.deliver_at)


def cancel(id_: IdArgument, server: ServerOption = DEFAULT_SERVER) -> None:
    """Cancel a delayed message; ends with 1 if it is too late.

    \b
    Example:
      raftlog delayed cancel 0003a1b2c3d4e5f60718293a4b5c
    """
    with errors_reported(changing=True), connected(server) as client:
        is_in_time = client.delayed.cancel(id_)
        text = "cancelled" if is_in_time else "too late: the message is delivered, or is being delivered"
        done(text, delayed_id=id_, cancelled=is_in_time)
    if not is_in_time:
        raise Exit(REFUSED)


def _time(delay: str | None, deliver_at: str | None) -> datetime | None:
    if (delay is None) == (deliver_at is None):
        wrong_usage("give either --delay or --deliver-at")
    if deliver_at is None:
        return None
    try:
        found = datetime.fromisoformat(deliver_at)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        wrong_usage(f"--deliver-at: {deliver_at[:64]!r} is not a time such as 2026-01-01T00:00:00Z")
    return found


def _row(found: DelayedMessage) -> Row:
    return {
        "id": found.delayed_id,
        "topic": found.topic,
        "partition": found.partition,
        "key": found.key or "",
        "deliver_at": time_text(found.deliver_at),
        "state": found.state,
        "reason": found.reason if isinstance(found.reason, str) else "",
    }
