"""Lists, redrives and discards the dead letters of a consumer group.

Decides: how many requests one call sends. A request that may have settled dead letters is not repeated when
its answer is lost, because the answer to the repeated request would omit these dead letters.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from msgspec import UNSET, Raw

from raftlog.client.session import Session
from raftlog.client.values import Key
from raftlog.errors import ConnectionLost, InvalidRequest
from raftlog.records.failures import Origin
from raftlog.records.keys import encode_key
from raftlog.records.tags import TAG_RECORD_HEADER
from raftlog.wire import dead_letters as wire
from raftlog.wire.limits import DEAD_LETTERS_MAX

IDS_BYTES_MAX: Final = 3 << 10  # of the ids in one URL


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that a consumer group could not process. ``id`` names the place of the original record.

    ``partition`` and ``offset`` are its place in the dead-letter topic. ``value`` is ``None`` if the record
    has no value, if the value is longer than 1 MiB, and in the results of ``redrive`` and ``discard``.
    """

    id: str
    origin: Origin
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    attempts: int
    reason: str
    failed_ms: int
    timestamp_ms: int
    size_bytes: int


class AsyncDeadLetters:
    """The dead letters of the consumer groups."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def list(
        self,
        topic: str,
        group: str,
        *,
        ids: Sequence[str] | None = None,
        reason: str | None = None,
        key: Key = None,
        limit: int | None = 100,
    ) -> Sequence[DeadLetter]:
        """Return open dead letters, partition by partition, the oldest first; all with ``limit=None``.

        ``reason`` selects dead letters whose reason contains this text, ``key`` dead letters with this key.
        Raises ``TopicNotFound`` if the group has no dead-letter topic.
        """
        found: list[DeadLetter] = []
        for some in _parts(ids):
            pairs = [("id", each) for each in some or ()]
            pairs += [("reason", reason)] if reason is not None else []
            pairs += [("key", _key_text(key))] if key is not None else []
            path = wire.LIST.at(topic=topic, group=group)
            await _list(self._session, path, pairs, limit, found)
        return found

    async def redrive(
        self,
        topic: str,
        group: str,
        *,
        ids: Sequence[str] | None = None,
        reason: str | None = None,
        key: Key = None,
        all: bool = False,
        limit: int | None = None,
        dry_run: bool = False,
    ) -> Sequence[DeadLetter]:
        """Let the group process selected or ``all`` dead letters again; return these, without their values.

        With ``dry_run`` no dead letter is redriven. After an ``Unknown`` error repeat the call: dead letters
        that are settled are not selected again.
        """
        path = wire.REDRIVE.at(topic=topic, group=group)
        return await _settle(self._session, path, _settled(ids, reason, key, all, dry_run), limit)

    async def discard(
        self,
        topic: str,
        group: str,
        *,
        ids: Sequence[str] | None = None,
        reason: str | None = None,
        key: Key = None,
        all: bool = False,
        limit: int | None = None,
        dry_run: bool = False,
    ) -> Sequence[DeadLetter]:
        """Settle dead letters without processing them again; arguments and result are as in ``redrive``."""
        path = wire.DISCARD.at(topic=topic, group=group)
        return await _settle(self._session, path, _settled(ids, reason, key, all, dry_run), limit)


async def _list(
    session: Session, path: str, pairs: Sequence[tuple[str, str]], limit: int | None, found: list[DeadLetter]
) -> None:
    """Add the dead letters of all pages to ``found``, until it has ``limit`` elements."""
    token: str | None = None
    while left := _left(limit, found):
        query = [*pairs, ("format", "base64"), ("limit", str(left))]
        query += [("page_token", token)] if token is not None else []
        page = (await session.ask_any("GET", f"{path}?{urlencode(query)}")).read(wire.DeadLetterList)
        found += map(_letter, page.items)
        token = page.next_page_token
        if token is None:
            return


async def _settle(
    session: Session, path: str, body: wire.SettleDeadLetters, limit: int | None
) -> Sequence[DeadLetter]:
    found: list[DeadLetter] = []
    while left := _left(limit, found):
        body.limit = left
        reply = await session.ask_any("POST", path, body=body, may_repeat=body.dry_run)
        page = reply.read(wire.DeadLettersSettled)
        found += map(_letter, page.items)
        body.page_token = page.next_page_token
        if page.next_page_token is None:
            break
    return found


def _settled(
    ids: Sequence[str] | None, reason: str | None, key: Key, is_all: bool, dry_run: bool
) -> wire.SettleDeadLetters:
    _check_ids(ids)
    return wire.SettleDeadLetters(
        ids=None if ids is None else [*ids],
        reason=reason,
        key=None if key is None else _key_text(key),
        all=is_all,
        dry_run=dry_run,
    )


def _check_ids(ids: object) -> None:
    """Raise ``TypeError`` for a single string, whose characters would be taken for ids."""
    if isinstance(ids, str | bytes):
        raise TypeError("ids: give a list of ids, not one string")


def _left(limit: int | None, found: Sequence[DeadLetter]) -> int:
    """The number of dead letters that the next request may return; 0 ends the call."""
    if limit is not None and limit < 1:
        raise InvalidRequest(f"limit is {limit}; give a number from 1, or None for all", field="limit")
    return DEAD_LETTERS_MAX if limit is None else min(limit - len(found), DEAD_LETTERS_MAX)


def _parts(ids: Sequence[str] | None) -> Sequence[Sequence[str] | None]:
    """Divide ids into groups, each small enough for the URL of one request."""
    if ids is None:
        return [None]
    _check_ids(ids)
    parts: list[list[str]] = []
    size_bytes = 0
    for each in dict.fromkeys(ids):
        size_bytes += len(urlencode([("id", each)])) + 1
        if not parts or size_bytes > IDS_BYTES_MAX:
            parts.append([])
            size_bytes = 0
        parts[-1].append(each)
    return parts


def _key_text(key: Key) -> str:
    try:
        return (encode_key(key) or b"").decode()
    except UnicodeDecodeError:
        raise InvalidRequest("key: not UTF-8; select such records by their ids", field="key") from None


def _letter(body: wire.DeadLetterDescription) -> DeadLetter:
    try:
        return _decoded(body)
    except ValueError as error:
        raise ConnectionLost(f"the response cannot be read: {error}") from error


def _decoded(body: wire.DeadLetterDescription) -> DeadLetter:
    key = None if body.key is None else body.key.encode()
    if key is not None and body.key_encoding == "base64":
        key = base64.b64decode(key)
    headers = [(name, None if text is None else text.encode()) for name, text in body.headers.items()]
    if body.headers_raw is not UNSET:
        headers += [
            (name, None if text is None else base64.b64decode(text)) for name, text in body.headers_raw
        ]
    headers += [(TAG_RECORD_HEADER, tag.encode()) for tag in body.tags]
    return DeadLetter(
        id=body.id,
        origin=Origin(body.origin.topic, body.origin.partition, body.origin.offset),
        partition=body.partition,
        offset=body.offset,
        key=key,
        value=_value(body),
        headers=tuple(headers),
        attempts=body.attempts,
        reason=body.reason,
        failed_ms=body.failed_at,
        timestamp_ms=body.timestamp,
        size_bytes=body.size_bytes,
    )


def _value(body: wire.DeadLetterDescription) -> bytes | None:
    raw = bytes(body.value) if isinstance(body.value, Raw) else b"null"
    return None if raw == b"null" else base64.b64decode(raw[1:-1])
