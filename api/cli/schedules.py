"""Commands about schedules: ``schedule create``, ``list``, ``describe`` and others."""

from __future__ import annotations

import enum
import sys
from typing import TYPE_CHECKING, Annotated

from api.cli.connection import connected
from api.cli.output import (
    DEFAULT_SERVER,
    ServerOption,
    done,
    errors_reported,
    is_json,
    note,
    options_checked,
    printed,
    show,
    write_json,
)
from api.cli.parameters import Argument, Option
from api.cli.tables import Row, time_text

if TYPE_CHECKING:
    from raftlog.wire.schedules import ScheduleDescription

_COLUMNS = ("id", "topic", "cron", "next_at", "state", "reason")
IdArgument = Annotated[str, Argument(metavar="ID", help="The id of a schedule.")]


class Policy(enum.StrEnum):
    """The policy for missed instants of a schedule."""

    SKIP = "skip"
    ONCE = "once"
    ALL = "all"


def create(
    topic: Annotated[str, Argument(help="The topic's name.", completes="topics")],
    value: Annotated[str, Argument(help="The value; - is all of standard input.")],
    cron: Annotated[str, Option("--cron", help="Minute, hour, day of the month, month, day of the week.")],
    time_zone: Annotated[
        str, Option("--time-zone", help="Time zone of the expression, such as Europe/Berlin.")
    ] = "UTC",
    missed: Annotated[
        Policy, Option("--missed", help="Handling of instants at which no broker could fire.")
    ] = Policy.ONCE,
    id_: Annotated[str | None, Option("--id", help="The id.  [default: a new id]")] = None,
    key: Annotated[str | None, Option("--key", "-k", help="The key.")] = None,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Store one record at each instant of a cron expression; prints the id.

    \b
    Example:
      raftlog schedule create reports nightly --cron "30 3 * * MON-FRI" --time-zone Europe/Berlin
    """
    content = sys.stdin.buffer.read() if value == "-" else value.encode()
    with errors_reported(changing=True), connected(server) as client, options_checked():
        found = client.schedules.create(
            topic, content, cron=cron, time_zone=time_zone, missed=missed.value, schedule_id=id_, key=key
        )
        if not is_json():
            note(f"next at {_time(found.next_at)}")
        printed(found.schedule_id, schedule_id=found.schedule_id, next_at=found.next_at)


def list_all(
    topic: Annotated[
        str | None, Option("--topic", help="Only schedules for this topic.", completes="topics")
    ] = None,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """List the schedules.

    \b
    Example:
      raftlog schedule list --topic reports
    """
    with errors_reported(), connected(server) as client:
        import msgspec

        found = client.schedules.list(topic)
        value = msgspec.json.decode(msgspec.json.encode(found))
        show([_row(one) for one in found], _COLUMNS, value=value, empty="there are no schedules")


def describe(id_: IdArgument, server: ServerOption = DEFAULT_SERVER) -> None:
    """Show one schedule with its record, as JSON.

    \b
    Example:
      raftlog schedule describe nightly
    """
    with errors_reported(), connected(server) as client:
        import msgspec

        write_json(msgspec.json.decode(msgspec.json.encode(client.schedules.describe(id_))))


def pause(id_: IdArgument, server: ServerOption = DEFAULT_SERVER) -> None:
    """Stop a schedule until it is resumed.

    \b
    Example:
      raftlog schedule pause nightly
    """
    with errors_reported(changing=True), connected(server) as client:
        client.schedules.pause(id_)
        done("paused", schedule_id=id_, state="paused")


def resume(id_: IdArgument, server: ServerOption = DEFAULT_SERVER) -> None:
    """Resume a schedule from now on, also after a failure.

    \b
    Example:
      raftlog schedule resume nightly
    """
    with errors_reported(changing=True), connected(server) as client:
        next_at = client.schedules.resume(id_).next_at
        done(f"next at {_time(next_at)}", schedule_id=id_, next_at=next_at)


def delete(id_: IdArgument, server: ServerOption = DEFAULT_SERVER) -> None:
    """Delete a schedule.

    \b
    Example:
      raftlog schedule delete nightly
    """
    with errors_reported(changing=True), connected(server) as client:
        client.schedules.delete(id_)
        done("deleted", deleted=id_)


def _time(milliseconds: int | None) -> str:
    return "never" if milliseconds is None else time_text(milliseconds)


def _row(found: ScheduleDescription) -> Row:
    return {
        "id": found.schedule_id,
        "topic": found.topic,
        "cron": found.cron,
        "time_zone": found.time_zone,
        "next_at": _time(found.next_at),
        "last_at": _time(found.last_at),
        "state": found.state,
        "reason": found.reason if isinstance(found.reason, str) else "",
    }
