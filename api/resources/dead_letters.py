"""Lists, redrives and discards the dead letters of a consumer group.

Decides: the order of writes. A redriven record is stored by a quorum in the retry topic before its dead
letter is settled, so that a crash in between repeats the record instead of losing it. Leaves to others: which
dead letters are open (``dead_letter_scan``), the jobs of queues (``redriven_jobs``), and processing the
records again (workers).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from aiohttp import web

from api.http import parameters
from api.http.bodies import read_json
from api.http.routes import TOPIC, Call, Parameter, Route, json_response
from api.http.steps import Steps
from api.resources import json_records
from api.resources.dead_letter_pages import Bodies, Letter, Pages, Use
from api.resources.dead_letter_scan import (
    URL_LETTERS_MAX,
    Cursor,
    Scan,
    Selection,
)
from api.resources.group_bodies import GROUP, name_of
from api.resources.json_values import ABSENT, SHOW, headers_in_json, key_in_json
from api.resources.redriven_jobs import RedrivenJobs
from partitions.metadata.image import TopicInfo
from partitions.values import QUORUM, AppendReceipt
from raftlog.errors import Conflict, InvalidRequest, RecordTooLarge, TopicNotFound
from raftlog.node.computing import computed
from raftlog.records.builder import Record
from raftlog.records.failures import Settled, dead_letter_topic, retry_topic, tombstone
from raftlog.types import TopicPartition
from raftlog.wire import dead_letters as wire
from raftlog.wire.limits import DEAD_LETTERS_MAX

LISTED_BYTES_MAX: Final = 1 << 20  # bytes of the dead letters of one response; one more may exceed it
SETTLED_BYTES_MAX: Final = (
    4 << 20
)  # bytes of the dead letters that one request settles; one more may exceed it
VALUE_BYTES_MAX: Final = 1 << 20  # longer values are not shown
SHORT_BYTES: Final = 256 << 10  # built on the event loop

LIMITS = parameters.WholeNumber(1, DEAD_LETTERS_MAX, 100)
FORMATS = ("auto", "base64")


async def list_dead_letters(call: Call) -> web.StreamResponse:
    """List the open dead letters of a group, partition by partition, the oldest first."""
    query = call.query
    ids = call.request.query.getall("id") if "id" in query else None
    selection = Selection.of(ids, query.get("reason"), query.get("key"), "id")
    shape = parameters.one_of(query, "format", FORMATS)
    limit = LIMITS.of(query, "limit")
    pages = Pages(
        call=call,
        source=await _source(call),
        selection=selection,
        limit=limit,
        letter_bytes_max=LISTED_BYTES_MAX,
        cursor_letters_max=URL_LETTERS_MAX,
    )

    async def show(scan: Scan, letters: Sequence[Letter]) -> Bodies:
        is_short = sum(letter.size_bytes for letter in letters) <= SHORT_BYTES
        build = partial(_bodies, scan.cursor.partition, letters, shape)
        return await computed(build, is_short=is_short)

    await _collect(pages, query.get("page_token"), show)
    return json_response(wire.DeadLetterList(pages.items, _next(pages), pages.foreign))


async def redrive_dead_letters(call: Call) -> web.StreamResponse:
    """Send dead letters to the group's retry topic, or back to the group's queue."""
    return await _settled(call, "redriven")


async def discard_dead_letters(call: Call) -> web.StreamResponse:
    """Settle dead letters, so that their records are not tried again."""
    return await _settled(call, "discarded")


async def _settled(call: Call, how: Settled) -> web.StreamResponse:
    wanted = await read_json(call, wire.SettleDeadLetters)
    has_selection = wanted.ids is not None or wanted.reason is not None or wanted.key is not None
    if has_selection == wanted.all:
        raise InvalidRequest(
            'all: select dead letters with ids, reason or key, or send "all": true for all of them',
            field="all",
        )
    selection = Selection.of(wanted.ids, wanted.reason, wanted.key, "ids")
    pages = Pages(
        call=call,
        source=await _source(call),
        selection=selection,
        limit=wanted.limit,
        letter_bytes_max=SETTLED_BYTES_MAX,
        cursor_letters_max=wanted.limit,
    )
    steps = Steps()
    redriver = await _redriver(call, steps) if how == "redriven" else None
    left = 0

    async def settle(scan: Scan, letters: Sequence[Letter]) -> Bodies:
        nonlocal left
        if isinstance(redriver, RedrivenJobs):
            found = await redriver.found(letters)
            left += len(letters) - len(found)
            letters = found
        if letters and not wanted.dry_run:
            if scan.cursor.partition >= pages.source.writable_partitions:
                await steps.take(_refuse_decommissioned(pages.source, scan.cursor.partition))
            if redriver is not None:
                await steps.take(redriver.redrive(letters))
            tombstones = [tombstone(letter.record.id, how) for letter in letters]
            await steps.take(_append(call, pages.source, scan.cursor.partition, tombstones))
        return _bodies(scan.cursor.partition, letters, None)

    await _collect(pages, wanted.page_token, settle)
    count = len(pages.items)
    if left and not count and pages.cursor is None:
        raise Conflict(
            f"the records of {left} dead letters are no longer in the topic, were never readable, or have "
            "tags that the queue does not select, so they cannot be redriven: list them, produce new "
            "records if needed, and discard the dead letters"
        )
    return json_response(
        wire.DeadLettersSettled(pages.items, count, wanted.dry_run, _next(pages), pages.foreign, left)
    )


async def _refuse_decommissioned(topic: TopicInfo, partition: int) -> None:
    """Raise ``Conflict`` if the partition is decommissioned: it accepts no records, so its dead letters
    cannot be settled.
    """
    raise Conflict(
        f"partition {partition} of topic {topic.name} is decommissioned, and its dead letters cannot be "
        f"settled: recommission it (`raftlog topic recommission-partitions {topic.name}`), and try again",
        topic=topic.name,
        partition=partition,
    )


async def _redriver(call: Call, steps: Steps) -> RedrivenJobs | Retries:
    """Return the object that redrives: a queue delivers its jobs again, other groups get records in their
    retry topic.
    """
    topic, group = call.match_info["topic"], name_of(call, "group")
    jobs = await RedrivenJobs.of(call, topic, group)
    if jobs is not None:
        return jobs
    retries = await _topic(call, retry_topic(topic, group), "whose records workers try again")
    return Retries(call, retries, steps)


async def _source(call: Call) -> TopicInfo:
    """Return the dead-letter topic of the path."""
    group = name_of(call, "group")
    name = dead_letter_topic(call.match_info["topic"], group)
    return await _topic(call, name, f"for the dead letters of group {group}")


async def _collect(pages: Pages, cursor: str | None, use: Use) -> None:
    """Find and use the dead letters, beginning at a cursor or at the first partition."""
    if cursor is None:
        pages.cursor = pages.next_partition(-1)
    else:
        pages.cursor = Cursor.parse(cursor)
        topics, name = pages.call.services.topics, pages.source.name
        await topics.hear_of([(name, pages.cursor.partition)])
        pages.source = topics.topic_here(name) or pages.source
        if pages.cursor.partition >= len(pages.source.partitions):
            raise InvalidRequest(
                f"page_token: {pages.source.name} has no partition {pages.cursor.partition}",
                field="page_token",
            )
    await pages.collect(use)


async def _topic(call: Call, name: str, purpose: str) -> TopicInfo:
    """Return a topic of the group. Raises ``TopicNotFound`` after the controller has confirmed that it does
    not exist.
    """
    found = await call.services.topics.topic(name)
    if found is None:
        raise TopicNotFound(
            f"there is no topic {name[:500]!r}, {purpose}; a worker of the group creates it. Check the names "
            "of topic and group: GET /v1/topics lists all topics",
            topic=name[:500],
        )
    return found


def _next(pages: Pages) -> str | None:
    return None if pages.cursor is None else str(pages.cursor)


# Writing.


@dataclass(frozen=True, slots=True)
class Retries:
    """Redrives dead letters to the retry topic of a group."""

    call: Call
    topic: TopicInfo
    steps: Steps

    async def redrive(self, letters: Sequence[Letter]) -> None:
        """Append the records, each to the retry topic's partition with the number of the record's original
        partition.
        """

        def partition_of(letter: Letter) -> int:
            return letter.record.origin.partition % self.topic.writable_partitions

        for partition, some in itertools.groupby(sorted(letters, key=partition_of), partition_of):
            records = [each.record.redriven().as_retry() for each in some]
            await self.steps.take(_append(self.call, self.topic, partition, records))


async def _append(call: Call, topic: TopicInfo, partition: int, records: Sequence[Record]) -> AppendReceipt:
    """Append records to one partition, all or none, acknowledged by a quorum."""
    build = partial(
        json_records.build_batches,
        records,
        bytes_max=call.services.batch_bytes_max(topic),
        now_ms=call.services.clock.wall_ms(),
        producer=None,
    )
    is_short = sum(map(json_records.size_of, records)) <= SHORT_BYTES
    try:
        batches = await computed(build, is_short=is_short)
    except RecordTooLarge as error:
        raise RecordTooLarge(
            f"a record does not fit into {topic.name}: {error}; raise max.message.bytes of that topic",
            **error.details,
        ) from error
    target = TopicPartition(topic.name, partition)
    timeout_ms = call.services.limits.control_timeout_ms
    return await call.services.gateway.append(target, batches, acks=QUORUM, timeout_ms=timeout_ms)


# Showing.


def _bodies(partition: int, letters: Sequence[Letter], shape: str | None) -> Bodies:
    """Return dead letters as JSON; without values if ``shape`` is None."""
    return [_body(partition, letter, shape) for letter in letters]


def _body(partition: int, letter: Letter, shape: str | None) -> wire.DeadLetterDescription:
    record = letter.record
    key, key_encoding = key_in_json(record.key)
    headers, tags, raw = headers_in_json(record.headers)
    body = wire.DeadLetterDescription(
        id=record.id,
        partition=partition,
        offset=letter.offset,
        origin=wire.LetterOrigin(*record.origin),
        attempts=record.attempts,
        reason=record.reason,
        failed_at=record.failed_ms,
        timestamp=record.timestamp_ms,
        key=key,
        headers=headers,
        tags=tags,
        size_bytes=letter.size_bytes,
        key_encoding=key_encoding,
        headers_raw=raw,
    )
    if shape is not None and len(record.value or b"") <= VALUE_BYTES_MAX:
        body.value, body.encoding = (
            ABSENT if record.value is None else SHOW[shape](record.value, letter.offset)
        )
    return body


_PAGE_TOKEN = Parameter("page_token", "`next_page_token` of the previous response, with the same selection")

ROUTES = (
    Route(
        wire.LIST,
        list_dead_letters,
        (
            TOPIC,
            GROUP,
            Parameter("limit", "maximum number of items", LIMITS.schema),
            _PAGE_TOKEN,
            Parameter("reason", "part of the reason; case does not matter"),
            Parameter("key", "the key of the record that failed, as text"),
            Parameter(
                "id",
                "the origin of a dead letter, `topic/partition/offset`; repeat it for several",
                {"type": "array", "items": {"type": "string"}},
                is_list=True,
            ),
            Parameter(
                "format",
                "`auto` shows values like a fetch, `base64` shows all values in base64",
                {"type": "string", "enum": list(FORMATS), "default": "auto"},
            ),
        ),
    ),
    Route(wire.REDRIVE, redrive_dead_letters, (TOPIC, GROUP)),
    Route(wire.DISCARD, discard_dead_letters, (TOPIC, GROUP)),
)
