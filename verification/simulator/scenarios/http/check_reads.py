"""Checks responses to reads: they must have exactly the user records from the requested offset to the next
offset.

Decides, by the committed records at the moment of the response, whether these are right: records,
``next_offset``, high watermark and ``up_to_date`` in JSON and batches (A2, A3), positions that the broker
resolves (A4), and every event of a stream (A5).
"""

from __future__ import annotations

import base64
import re
from typing import Any, Final

import msgspec

from partitions.values import FetchResult, key_of
from raftlog.records.batch import check_batch, split_batches
from raftlog.records.reader import StoredRecord, read_records
from raftlog.types import Offset, Term
from verification.simulator.scenarios.http.committed import Row
from verification.simulator.scenarios.http.known_partitions import Answered
from verification.simulator.scenarios.http.wanted_tags import is_wanted, selection_in

_SHOWN: Final = "A2 a read shows all of a range"
_ONE_RECORD: Final = re.compile(r"/records/\d")
_ENDS: Final = "A3 the offsets of a read are correct"
_PLACE: Final = "A4 a position is found"
_EVENTS: Final = "A5 an event stream resumes where it was"
_EARLY: Final = 0.8  # of its time, by clocks that differ
_LATE_S: Final = 30.0
_TAG: Final = "raftlog.tag"
_BATCH: Final = "application/vnd.raftlog.batch.v1"
_UNIT_S: Final = {"ms": 0.001, "s": 1.0}


def check_fetch(answered: Answered) -> None:
    """Check the response to a fetch, in JSON or as batches."""
    exchange = answered.exchange
    headers = exchange.answer_headers
    if exchange.status in (410, 416):
        _check_refused(answered)
    if exchange.status not in (200, 204) or "text/event-stream" in headers.get("content-type", ""):
        return
    reported = {
        name: int(headers.get(f"raftlog-{name}", "-1"))
        for name in ("next-offset", "high-watermark", "log-start-offset", "leader-epoch")
    }
    following, high_watermark = reported["next-offset"], reported["high-watermark"]
    _check_ends(answered, following, high_watermark, reported["log-start-offset"])
    if exchange.status == 204:
        if exchange.answer or following != high_watermark:
            answered.wrong(
                _ENDS,
                f"the response is empty; the next offset is {following}, and the end is {high_watermark}",
            )
        _check_patience(answered)
    if headers.get("content-type") == _BATCH:
        if selection_in(exchange.query) is not None:
            _check_parts(answered, following)
        else:
            _check_batches(answered, reported)
        return
    body: dict[str, Any] = msgspec.json.decode(exchange.answer) if exchange.answer else {}
    shown: list[dict[str, Any]] = body.get("records", [])
    if body:
        in_body = {name: body[name.replace("-", "_")] for name in reported}
        is_at_end = following >= high_watermark
        # A busy broker may have applied less than it has committed: up to date is then short of the end.
        may_be_short = bool(answered.known.cluster.odds.turn_s) and not is_at_end
        if in_body != reported or (body["up_to_date"] is not is_at_end and not may_be_short):
            answered.wrong(_ENDS, f"{in_body}, up to date {body['up_to_date']}; the headers have {reported}")
        if not shown or (body["topic"], body["partition"]) != key_of(answered.target):
            answered.wrong(_SHOWN, f"{len(shown)} records of {body['topic']}/{body['partition']}")
    _check_records(answered, shown, following, reported)


def check_event(answered: Answered, event: bytes) -> None:
    """Check one event of a stream. The stream's position is kept in the exchange."""
    fields = dict(line.split(": ", 1) for line in event.decode().split("\n") if ": " in line)
    memory, data = answered.exchange.memory, msgspec.json.decode(fields["data"])
    if fields["event"] == "problem":
        return
    at = memory.get("at")
    if at is None:
        last_id = answered.exchange.headers.get("last-event-id")
        asked = (
            answered.exchange.query.get("offset", "earliest") if last_id is None else str(int(last_id) + 1)
        )
        at = int(asked) if asked.isdigit() else None
        if asked == "latest":
            _check_not_before(
                answered, data["offset"] if fields["event"] == "record" else data["next_offset"]
            )
    if fields["event"] == "heartbeat":
        following = data["next_offset"]
        _check_ends(answered, following, data["high_watermark"], 0)
        # A stream that has passed records for long, such as those of control, says so before the end.
        is_past = selection_in(answered.exchange.query) is not None or (at is not None and following > at)
        if following != data["high_watermark"] and not is_past:
            answered.wrong(_EVENTS, f"a heartbeat at {following}, and {data['high_watermark']} is the end")
        missed = [] if at is None else _rows(answered, at, following)
        if missed or (at is not None and following < at):
            answered.wrong(_EVENTS, f"a heartbeat at {following} behind {at} leaves out {missed[:3]}")
        memory["at"] = following
        return
    offset = data["offset"]
    row = next(iter(_rows(answered, offset, offset + 1)), None)
    missed = [] if at is None else _rows(answered, at, offset)
    if fields.get("id") != str(offset) or (at is not None and offset < at) or missed:
        answered.wrong(_EVENTS, f"id {fields.get('id')} of {offset} at {at}, left out is {missed[:3]}")
    if offset >= answered.committed.known_from:
        _check_shown(answered, [] if row is None else [row], [data])
    memory["at"] = offset + 1


def check_offset(answered: Answered) -> None:
    """Check the offset that the broker gives for a position, which must be linearizable."""
    exchange = answered.exchange
    if exchange.status != 200:
        return
    body = msgspec.json.decode(exchange.answer)
    offset, timestamp = body["offset"], body["timestamp"]
    at = exchange.query.get("at", "latest")
    least, end = exchange.memory.get("end", 0), answered.end
    row = answered.committed.at(offset)
    is_known = offset >= max(answered.committed.known_from, _start(answered))
    if is_known and timestamp is not None and (row is None or timestamp != row.timestamp_ms):
        answered.wrong(_PLACE, f"the timestamp {timestamp} of {row}")
    if is_known and timestamp is None and row is not None and offset < least:
        answered.wrong(_PLACE, f"no timestamp of {row}")
    if at == "latest" and not least <= offset <= end:
        answered.wrong(_PLACE, f"the end is {offset}, {least} was committed before, {end} is now")
    if at.startswith("-"):
        _check_last_offset(answered, int(at[1:]), offset)
    if at.startswith("timestamp:"):
        wanted = int(at.removeprefix("timestamp:"))
        early = [one for one in _rows(answered, _start(answered), offset) if one.timestamp_ms >= wanted]
        # It is a record that is new enough, or the end, which has no timestamp.
        is_right = offset >= least if timestamp is None else timestamp >= wanted
        if early or (is_known and not is_right) or offset > end:
            answered.wrong(_PLACE, f"{offset} is {row}, before it {early[:1]}")


def _check_last_offset(answered: Answered, count: int, offset: int) -> None:
    """Check the offset of the first of the last ``count`` user records.

    The end of the log may be any end between the request and the response.
    """
    committed, start = answered.committed, _start(answered)
    least = committed.first_of_last(count, answered.exchange.memory.get("end", 0))
    left = committed.between(start, answered.end)
    most = left[-count:][0].offset if left else max(start, answered.end - count)
    if not least <= offset <= most:
        answered.wrong(_PLACE, f"{offset}, not from {least} to {most}, is the first of the last {count}")


def check_message(answered: Answered, offset: int) -> None:
    """Check the response to a read of one record by its offset."""
    status = answered.exchange.status
    row = answered.committed.at(offset)
    if status == 200:
        _check_shown(answered, [] if row is None else [row], [msgspec.json.decode(answered.exchange.answer)])
    elif status == 404 and row is not None:
        answered.wrong(_SHOWN, f"{row} is there")
    elif status in (410, 416):
        _check_refused(answered)


def _check_records(
    answered: Answered, shown: list[dict[str, Any]], following: int, reported: dict[str, int]
) -> None:
    exchange = answered.exchange
    asked = exchange.query.get("offset", "earliest")
    limit = int(exchange.query.get("limit", "100000"))
    first = shown[0]["offset"] if shown else following
    if len(shown) > limit:
        answered.wrong(_SHOWN, f"{len(shown)} records")
    begins = first  # the known position of the reader
    if asked.isdigit():
        begins = int(asked)
    elif asked == "earliest" and "wait" not in exchange.query:
        begins = reported["log-start-offset"]
    elif asked == "latest":
        _check_not_before(answered, first)
    elif asked.startswith("-") and "max_bytes" not in exchange.query:
        _check_last(answered, int(asked[1:]), limit, shown, reported)
        return
    elif asked.startswith("timestamp:"):
        wanted = int(asked.removeprefix("timestamp:"))
        early = [
            row for row in _rows(answered, reported["log-start-offset"], first) if row.timestamp_ms >= wanted
        ]
        # else it was the end of a replica without later records
        is_found = first < exchange.memory.get("least_end", 0)
        if early or (shown and is_found and shown[0]["timestamp"] < wanted):
            answered.wrong(_PLACE, f"it begins at {first} with {shown[:1]}, {early[:1]} comes before")
    if following < begins:
        answered.wrong(_ENDS, f"the request begins at {begins}, but the next offset is {following}")
    if begins < answered.committed.known_from:
        return
    _check_shown(answered, _rows(answered, begins, following), shown)


def _check_last(
    answered: Answered, count: int, limit: int, shown: list[dict[str, Any]], reported: dict[str, int]
) -> None:
    """Check a response with the first ``limit`` of the last ``count`` records. The broker may count them back
    from any end between the end at the request and the reported end.
    """
    end = reported["high-watermark"]
    if end < answered.exchange.memory.get("least_end", 0):
        answered.wrong(_PLACE, f"the end is {end}")
    if reported["log-start-offset"] < answered.committed.known_from:
        return
    rows = _rows(answered, reported["log-start-offset"], end)
    wanted = rows[-count:]
    if not wanted and shown:
        return  # it has waited for the first record
    if shown and wanted and shown[0]["offset"] < wanted[0].offset:
        # The place was found when the end was lower: at most where the next record is.
        from_there = [row for row in rows if row.offset >= shown[0]["offset"]]
        least_end = answered.exchange.memory.get("least_end", 0)
        if len(from_there) > count and from_there[count].offset >= least_end:
            wanted = from_there
    _check_shown(answered, wanted[:limit], shown)
    following = wanted[limit].offset if len(wanted) > limit else end
    last = wanted[limit - 1].offset if len(wanted) > limit else end - 1
    if not last < reported["next-offset"] <= following:
        answered.wrong(_PLACE, f"{reported['next-offset']} comes next, {following} should")


def _check_shown(answered: Answered, wanted: list[Row], shown: list[dict[str, Any]]) -> None:
    if [row.offset for row in wanted] != [one["offset"] for one in shown]:
        offsets = [row.offset for row in wanted], [one["offset"] for one in shown]
        answered.wrong(_SHOWN, f"{offsets[1]} where {offsets[0]} are committed")
        return
    for row, one in zip(wanted, shown, strict=True):
        kind = "LogAppendTime" if row.is_append_time else "CreateTime"
        headers, tags = _headers_of(row)
        is_part = selection_in(answered.exchange.query) is not None  # of a batch, with its own checksum
        crc = row.crc if is_part else one["crc"]
        found = (_key_of(one), _value_of(one), one["timestamp"], one["timestamp_type"], crc)
        is_equal = found == (row.key, row.value, row.timestamp_ms, kind, row.crc)
        if not is_equal or (one["headers"], one["tags"]) != (headers, tags):
            answered.wrong(_SHOWN, f"{one} where {row} is committed")


def _check_batches(answered: Answered, reported: dict[str, int]) -> None:
    exchange = answered.exchange
    asked = exchange.query.get("offset", "")
    broker = answered.machine.broker
    if not asked.isdigit() or broker is None:
        return
    result = FetchResult(
        offset=Offset(int(asked)),
        data=exchange.answer,
        next_offset=Offset(reported["next-offset"]),
        log_start_offset=Offset(reported["log-start-offset"]),
        high_watermark=Offset(reported["high-watermark"]),
        leader_epoch=Term(reported["leader-epoch"]),
    )
    answered.known.cluster.responses.read(answered.target, broker, result)


def _check_parts(answered: Answered, following: int) -> None:
    """Check a response for a selection of tags: it has all matching records, and no uncommitted record."""
    exchange = answered.exchange
    first = int(exchange.query["offset"])
    found: list[StoredRecord] = []
    for batch in split_batches(exchange.answer):
        check_batch(batch)
        found += read_records(batch)
    if first < answered.committed.known_from:
        return
    wanted = [row.offset for row in _rows(answered, first, following)]
    selection = selection_in(exchange.query)
    matching = [one.offset for one in found if one.offset >= first and is_wanted(one.headers, selection)]
    if matching != wanted:
        answered.wrong(_SHOWN, f"{matching} have {selection}, committed up to {following} are {wanted}")
    for one in found:
        row = answered.committed.at(one.offset)
        is_known = one.offset >= answered.committed.known_from
        if is_known and (row is None or (row.key, row.value) != (one.key, one.value)):
            answered.wrong(_SHOWN, f"{one} where {row} is committed")


def _check_ends(answered: Answered, following: int, high_watermark: int, start: int) -> None:
    if not 0 <= following <= high_watermark <= answered.end:
        detail = f"{following} comes next of {high_watermark}, committed is {answered.end}"
        answered.wrong(_ENDS, detail)
    if start > 0:
        answered.known.cluster.log_starts.reported(answered.target, start)


def _check_not_before(answered: Answered, first: int) -> None:
    """Check that ``latest`` is not below the end that the slowest replica knew at the time of the request."""
    least = answered.exchange.memory.get("least_end", 0)
    if first < least:
        answered.wrong(_PLACE, f"latest is {first}, everybody knew {least}")


def _check_patience(answered: Answered) -> None:
    """Check that an empty response comes when the client's ``wait`` has passed, and not much later."""
    exchange = answered.exchange
    wait_s = _seconds(exchange.query.get("wait", "0s"))
    took_s = answered.known.cluster.loop.now - exchange.arrived_at
    if not wait_s * _EARLY <= took_s <= wait_s / _EARLY + _LATE_S:
        answered.wrong(_ENDS, f"no record within {took_s:g} s")


def _check_refused(answered: Answered) -> None:
    """Check that a refused offset is deleted or above all committed offsets."""
    exchange = answered.exchange
    body = msgspec.json.decode(exchange.answer)
    start, end = body["start"], body["end"]
    if "offset" in body:
        offset = body["offset"]
        is_right = (
            offset < start if exchange.status == 410 else offset > end or exchange.path.endswith(f"/{end}")
        )
        if _ONE_RECORD.search(exchange.path) and exchange.status == 416:
            is_right = offset >= end
        if not is_right or end > answered.end:
            answered.wrong(_ENDS, f"{offset} is refused, valid are {start} to {end} of {answered.end}")
    if start:
        answered.known.cluster.log_starts.reported(answered.target, start)


def _rows(answered: Answered, first: int, end: int) -> list[Row]:
    """Return the committed records from ``first`` to ``end``; with tags, only the records that the tags
    select.
    """
    rows = answered.committed.between(max(first, answered.committed.known_from), end)
    selection = selection_in(answered.exchange.query)
    return [row for row in rows if is_wanted(row.headers, selection)]


def _start(answered: Answered) -> int:
    """Return the latest log start of any replica, because retention may have moved it a moment ago."""
    return answered.known.cluster.log_starts.latest(answered.group)


def _seconds(text: str) -> float:
    unit = "ms" if text.endswith("ms") else "s"
    return float(text.removesuffix(unit)) * _UNIT_S[unit]


def _key_of(one: dict[str, Any]) -> bytes | None:
    key = one["key"]
    if key is None:
        return None
    return base64.b64decode(key) if one.get("key_encoding") == "base64" else str(key).encode()


def _value_of(one: dict[str, Any]) -> bytes | None:
    value = one["value"]
    if value is None:
        return None
    if one["encoding"] == "base64":
        return base64.b64decode(value)
    return str(value).encode() if one["encoding"] == "utf8" else msgspec.json.encode(value)


def _headers_of(row: Row) -> tuple[dict[str, str | None], list[str]]:
    plain = {name: None if text is None else text.decode() for name, text in row.headers if name != _TAG}
    return plain, [(text or b"").decode() for name, text in row.headers if name == _TAG]
