"""Commands about dead letters: ``dead-letter list``, ``describe``, ``redrive`` and ``discard``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import click

from api.cli.connection import connected
from api.cli.output import (
    DEFAULT_SERVER,
    REFUSED,
    ServerOption,
    errors_reported,
    is_json,
    note,
    problem,
    show,
    write_json,
    wrong_usage,
)
from api.cli.parameters import Argument, Option
from api.cli.tables import Row, printable, time_text
from raftlog.errors import TopicNotFound
from raftlog.units import counted

if TYPE_CHECKING:
    from raftlog import DeadLetter
    from raftlog.records.failures import Settled

TopicArgument = Annotated[str, Argument(help="The topic whose records failed.", completes="topics")]
GroupOption = Annotated[str, Option("--group", "-g", help="The consumer group.", completes="groups")]
IdsOption = Annotated[
    list[str] | None,
    Option("--id", help="Id of a dead letter, TOPIC/PARTITION/OFFSET as in a list; repeatable."),
]
ReasonOption = Annotated[str | None, Option("--reason", help="Part of the reason; case does not matter.")]
KeyOption = Annotated[str | None, Option("--key", help="The key of the record that failed.")]
SettledOption = Annotated[int | None, Option("--limit", "-n", min=1, help="Maximum number.  [default: all]")]
AllOption = Annotated[bool, Option("--all", help="All dead letters of the group.")]
DryRunOption = Annotated[bool, Option("--dry-run", help="Only show the changes.")]

_REASON_CHARACTERS: Final = 80  # shown in a table, where the reason is the last column


def list_all(
    topic: TopicArgument,
    group: GroupOption,
    ids: IdsOption = None,
    reason: ReasonOption = None,
    key: KeyOption = None,
    limit: Annotated[int, Option("--limit", "-n", min=1, help="Maximum number.")] = 100,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """List the open dead letters of a group: neither redriven nor discarded.

    \b
    Examples:
      raftlog dead-letter list orders --group mail
      raftlog dead-letter list orders --group mail --reason "no such user" --limit 1000
    """
    with errors_reported(), _topics_named(topic, group), connected(server) as client:
        found = client.dead_letters.list(
            topic, group, ids=ids or None, reason=reason, key=key, limit=limit + 1
        )
        _show(found[:limit], has_value=True)
        if not found:
            note("there are no dead letters")
        elif len(found) > limit:
            note(f"there are more than {limit}; --limit shows more")


def describe(
    topic: TopicArgument,
    id: Annotated[str, Argument(help="Id of the dead letter, TOPIC/PARTITION/OFFSET as in a list.")],
    group: GroupOption,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Show one dead letter: the reason and time of the failure, its headers and its value.

    \b
    Example:
      raftlog dead-letter describe orders orders/1/42 --group mail
    """
    with errors_reported(), _topics_named(topic, group), connected(server) as client:
        found = client.dead_letters.list(topic, group, ids=[id])
        if not found:
            _end_not_open([id], topic, group)
        if is_json():
            write_json(_in_json(found[0], has_value=True))
        else:
            _write_letter(found[0])


def redrive(
    topic: TopicArgument,
    group: GroupOption,
    ids: IdsOption = None,
    reason: ReasonOption = None,
    key: KeyOption = None,
    limit: SettledOption = None,
    all: AllOption = False,
    dry_run: DryRunOption = False,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Try dead letters again: the workers of the group get them from its retry topic.

    \b
    Examples:
      raftlog dead-letter redrive orders --group mail --id orders/1/42
      raftlog dead-letter redrive orders --group mail --reason "no such user" --dry-run
      raftlog dead-letter redrive orders --group mail --all
    """
    _settle("redriven", topic, group, ids, reason, key, limit, all, dry_run, server)


def discard(
    topic: TopicArgument,
    group: GroupOption,
    ids: IdsOption = None,
    reason: ReasonOption = None,
    key: KeyOption = None,
    limit: SettledOption = None,
    all: AllOption = False,
    dry_run: DryRunOption = False,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Discard dead letters: they are not tried again.

    \b
    Examples:
      raftlog dead-letter discard orders --group mail --id orders/1/42
      raftlog dead-letter discard orders --group mail --key u1 --dry-run
    """
    _settle("discarded", topic, group, ids, reason, key, limit, all, dry_run, server)


def _settle(
    how: Settled,
    topic: str,
    group: str,
    ids: list[str] | None,
    reason: str | None,
    key: str | None,
    limit: int | None,
    is_all: bool,
    dry_run: bool,
    server: str,
) -> None:
    if bool(ids or reason is not None or key is not None) == is_all:
        wrong_usage("no dead letters are selected; give --id, --reason or --key, or --all")
    with errors_reported(changing=not dry_run), _topics_named(topic, group), connected(server) as client:
        letters = client.dead_letters
        settle = letters.redrive if how == "redriven" else letters.discard
        settled = settle(
            topic, group, ids=ids or None, reason=reason, key=key, all=is_all, limit=limit, dry_run=dry_run
        )
        _show(settled, has_value=False)
    note(
        f"{counted(len(settled), 'dead letter')} would be {how}; nothing was changed"
        if dry_run
        else f"{len(settled)} {how}"
    )
    missing = {*(ids or ())} - {letter.id for letter in settled}
    if missing and limit is None:
        _end_not_open(sorted(missing), topic, group)


def _end_not_open(ids: Sequence[str], topic: str, group: str) -> NoReturn:
    some = ", ".join(ids)
    problem(
        f"error: not selected: {some}; `raftlog dead-letter list {topic} --group {group}` shows the open "
        "dead letters"
    )
    raise click.exceptions.Exit(REFUSED)


@contextmanager
def _topics_named(topic: str, group: str) -> Iterator[None]:
    """Replace the error for a missing topic of the group by an error that says how the topic is created."""
    try:
        yield
    except TopicNotFound as error:
        name = str(error.details.get("topic"))
        if name.endswith(".retry"):
            text = (
                f"dead letters cannot be redriven: there is no topic {name!r}; start a worker of the group, "
            )
            text += f"which creates it, or run `raftlog topic create {name}` with the partitions of {topic}"
        else:
            text = f"group {group!r} has no dead letters of {topic!r}: there is no topic {name!r}; "
            text += "`raftlog topic list` shows all topics, `raftlog group list` all groups"
        raise TopicNotFound(text, **error.details) from error


def _show(letters: Sequence[DeadLetter], *, has_value: bool) -> None:
    value = [_in_json(letter, has_value=has_value) for letter in letters] if is_json() else None
    show([_row(letter) for letter in letters], ("id", "failed_at", "attempts", "reason"), value=value)


def _row(letter: DeadLetter) -> Row:
    reason = printable(letter.reason)
    is_long = len(reason) > _REASON_CHARACTERS
    return {
        "id": letter.id,
        "failed_at": time_text(letter.failed_ms),
        "attempts": letter.attempts,
        "key": None if letter.key is None else letter.key.decode(errors="backslashreplace"),
        "size_bytes": letter.size_bytes,
        "reason": reason[: _REASON_CHARACTERS - 1] + "…" if is_long else reason,
    }


def _write_letter(letter: DeadLetter) -> None:
    fields = {
        "id": letter.id,
        "dead letter": f"partition {letter.partition}, offset {letter.offset}",
        "failed_at": time_text(letter.failed_ms),
        "attempts": letter.attempts,
        "reason": letter.reason,
        "timestamp": time_text(letter.timestamp_ms),
        "key": "-" if letter.key is None else letter.key.decode(errors="backslashreplace"),
    }
    for name, content in letter.headers:
        fields[f"header {name}"] = "-" if content is None else content.decode(errors="backslashreplace")
    for name, text in fields.items():
        click.echo(f"{printable(name)}: {printable(str(text))}")
    if letter.value is None:
        note(f"no value is shown; the dead letter has {counted(letter.size_bytes, 'byte')}")
    else:
        click.echo()
        sys.stdout.flush()
        sys.stdout.buffer.write(letter.value + b"\n")


def _in_json(letter: DeadLetter, *, has_value: bool) -> Row:
    """Return a dead letter as JSON, as in the response of a broker."""
    from api.resources.json_values import ABSENT, as_it_looks, headers_in_json, key_in_json

    key, key_encoding = key_in_json(letter.key)
    headers, tags, raw = headers_in_json(letter.headers)
    row: dict[str, object] = {
        "id": letter.id,
        "partition": letter.partition,
        "offset": letter.offset,
        "origin": letter.origin._asdict(),
        "attempts": letter.attempts,
        "reason": letter.reason,
        "failed_at": letter.failed_ms,
        "timestamp": letter.timestamp_ms,
        "key": key,
        "headers": headers,
        "tags": tags,
        "size_bytes": letter.size_bytes,
    }
    if has_value:
        value, encoding = ABSENT if letter.value is None else as_it_looks(letter.value, 0)
        row |= {"value": json.loads(bytes(value)), "encoding": encoding}
    if isinstance(key_encoding, str):
        row["key_encoding"] = key_encoding
    if isinstance(raw, list):
        row["headers_raw"] = raw
    return row
