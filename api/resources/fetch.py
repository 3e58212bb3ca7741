"""Handles fetches: records of one partition as JSON, as binary batches, or as an event stream; and reads of
one message.

A read is a function of its URL: the broker keeps no cursor. A fetch without records returns 204 with the next
offset in a header. A waiting request ends when there are records, its time has passed, its topic is deleted
(404), or its client disconnects.
"""

from __future__ import annotations

from functools import partial

from aiohttp import web
from msgspec import structs

from api.http import parameters
from api.http.batch_answers import BatchesAnswer, can_send_pieces
from api.http.disconnects import has_client
from api.http.redirects import redirect_to_leader
from api.http.routes import (
    ISOLATION,
    PARTITION,
    ROUTE,
    TOPIC,
    Call,
    Parameter,
    Route,
    duration,
    json_response,
)
from api.resources.events import RECORDS_PER_WRITE, stream
from api.resources.json_answers import Page, View, is_shown_fast
from api.resources.json_values import FORMATS
from api.resources.reading import first_page, read
from broker.listeners.answers_in_flight import Turn
from broker.ports import Limits
from partitions.values import FetchRequest, FetchResult, LastRecords, Position, Start
from raftlog.errors import InvalidRequest, OffsetOutOfRange, RecordNotFound
from raftlog.node.reading import IN_PIECES_BYTES_MIN
from raftlog.records.tags import tag_fields
from raftlog.types import Offset, TopicPartition
from raftlog.wire import bodies, headers, media_types, records
from raftlog.wire.limits import (
    RACK_CHARACTERS_MAX,
    RECORDS_MAX,
    STALENESS_MS_DEFAULT,
    STALENESS_MS_MAX,
    STALENESS_MS_MIN,
    TAG_CHARACTERS_MAX,
    TAGS_MAX,
)

RECORDS = parameters.WholeNumber(1, RECORDS_MAX, RECORDS_MAX)
MIN_OFFSET = parameters.WholeNumber(0, parameters.OFFSET_MAX, 0)
SOURCES = ("leader", "closest")
UNDECODABLE = ("fail", "skip")
_JSON_ONLY = ("limit", "format", "undecodable")


async def fetch(call: Call) -> web.StreamResponse:
    """Return records of one partition, in the media type that the client accepts."""
    _, target = call.partition()
    if "route" in call.query and (other := redirect_to_leader(call, target)) is not None:
        return other
    match call.media_type:
        case media_types.BATCH:
            return await _fetch_batches(call, target)
        case media_types.EVENT_STREAM:
            return await stream(
                call, _view(call, target, RECORDS_PER_WRITE), _request_of(call, headers_too=True)
            )
        case _:
            return await _fetch_json(call, target)


async def message(call: Call) -> web.StreamResponse:
    """Return one record by its offset."""
    _, target = call.partition()
    offset = parameters.OFFSET.read(call.match_info["offset"], "offset")
    committed_only = parameters.committed_only(call.query)
    result = await read(
        call, target, FetchRequest(position=Offset(offset), bytes_max=1, committed_only=committed_only)
    )
    if not result.data and offset < result.high_watermark:
        raise RecordNotFound(
            f"offset {offset} of {target} is part of a transaction that is still open; retry after its "
            "end, or send isolation=uncommitted",
            offset=offset,
        )
    if not result.data:
        raise OffsetOutOfRange(
            f"offset {offset} of {target} is not written yet; the newest offset is "
            f"{result.high_watermark - 1}",
            start=result.log_start_offset,
            end=result.high_watermark,
            offset=offset,
        )
    with call.admission.answers.turn(partial(has_client, call.request)) as turn:
        shown = (await _view(call, target, 1).page(result, turn)).records
    if not shown or shown[0].offset != offset:
        raise RecordNotFound(f"offset {offset} of {target} has no user record", offset=offset)
    fields = {name: getattr(shown[0], name) for name in shown[0].__struct_fields__}
    return json_response(bodies.Message(**fields, topic=target.topic, partition=target.partition))


async def _fetch_batches(call: Call, target: TopicPartition) -> web.Response:
    for name in _JSON_ONLY:
        if name in call.query:
            raise InvalidRequest(f"{name} is for JSON; limit binary responses with max_bytes", field=name)
    request = _request_of(call)
    if request.bytes_max >= IN_PIECES_BYTES_MIN and can_send_pieces(call):
        request = structs.replace(request, in_pieces=True)
    result = await read(call, target, request)
    places = _places(result, result.next_offset)
    if not result.data:
        return web.Response(status=204, headers=places)
    places["Content-Type"] = media_types.BATCH
    if result.rest is not None:
        return BatchesAnswer(result.data, result.rest, places)
    return web.Response(
        body=bytes(result.data), headers=places
    )  # copies the batches, which came from another broker


async def _fetch_json(call: Call, target: TopicPartition) -> web.Response:
    request = _request_of(call)
    limit = RECORDS.of(call.query, "limit")
    with call.admission.answers.turn(partial(has_client, call.request)) as turn:
        return await _shown(call, _view(call, target, limit), request, turn)


async def _shown(call: Call, view: View, request: FetchRequest, turn: Turn) -> web.Response:
    result, page = await _page(call, view, request, turn)
    places = _places(result, page.next_offset)
    if not page.records and not page.skipped:
        return web.Response(status=204, headers=places)
    body = bodies.Fetched(
        view.target.topic,
        view.target.partition,
        result.leader_epoch,
        result.log_start_offset,
        result.high_watermark,
        page.next_offset,
        page.next_offset >= result.end,
        page.records,
        page.skipped,
        result.is_archived,
    )
    answer = partial(json_response, body, headers=places)
    return await turn.computed(answer, is_short=is_shown_fast(result))


def _view(call: Call, target: TopicPartition, limit: int) -> View:
    return View(
        target=target,
        format=parameters.one_of(call.query, "format", FORMATS),
        limit=limit,
        skips_undecodable=parameters.one_of(call.query, "undecodable", UNDECODABLE) == "skip",
        wanted=parameters.selection(call.query),
    )


async def _page(call: Call, view: View, request: FetchRequest, turn: Turn) -> tuple[FetchResult, Page]:
    while True:
        try:
            return await first_page(partial(read, call, view.target), view, request, turn)
        except OffsetOutOfRange:
            if isinstance(request.position, int):
                raise
            # Retention deleted the offset of a second read, which the client did not choose.


def _request_of(call: Call, *, headers_too: bool = False) -> FetchRequest:
    query, limits = call.query, call.services.limits
    json_bytes = min(limits.fetch_json_bytes_max, limits.fetch_bytes_max)
    bytes_max = limits.fetch_bytes_max if call.media_type == media_types.BATCH else json_bytes
    last_id = call.request.headers.get("Last-Event-ID", "") if headers_too else ""
    selection = parameters.selection(query)
    position: Position
    if last_id:
        position = Offset(
            parameters.number_between(last_id, "Last-Event-ID", low=0, high=parameters.OFFSET_MAX - 1) + 1
        )
    elif "offset" in query:
        position = parameters.position(query["offset"], "offset")
    else:
        position = Start.EARLIEST
    if selection is not None and isinstance(position, LastRecords):
        raise InvalidRequest(
            f"offset is {query['offset']}, which counts records of all tags; with tags, send a number, "
            "earliest, latest or timestamp:2026-01-01T00:00:00Z",
            field="offset",
        )
    if not query:
        return FetchRequest(position=position, bytes_max=min(limits.fetch_bytes_default, bytes_max))
    wanted = min(_bytes_max(limits).of(query, "max_bytes"), bytes_max)
    bytes_min = _bytes_min(limits).of(query, "min_bytes")
    request = FetchRequest(
        position=position,
        bytes_max=wanted,
        bytes_min=min(max(bytes_min, 1), wanted),
        wait_ms=call.wait_ms(),
        committed_only=parameters.committed_only(call.query),
        **tag_fields(selection),
    )
    return _with_closest(call, request)


def _with_closest(call: Call, request: FetchRequest) -> FetchRequest:
    """Return the request with the parameters of a fetch that any replica may serve. Raises
    ``InvalidRequest``.
    """
    query = call.query
    min_offset = Offset(MIN_OFFSET.of(query, "min_offset"))
    if parameters.one_of(query, "read_from", SOURCES) == "leader":
        for name in ("rack", "max_staleness"):
            if name in query:
                raise InvalidRequest(f"{name} needs read_from=closest; send both", field=name)
        return structs.replace(request, min_offset=min_offset) if min_offset else request
    return structs.replace(
        request,
        min_offset=min_offset,
        max_staleness_ms=_max_staleness_ms(call),
        rack=_rack(call),
        is_local=query.get("route") == "none",
    )


def _max_staleness_ms(call: Call) -> int:
    found_ms = parameters.duration_ms(call.query, "max_staleness", STALENESS_MS_DEFAULT)
    if not STALENESS_MS_MIN <= found_ms <= STALENESS_MS_MAX:
        low, high = map(parameters.duration_text, (STALENESS_MS_MIN, STALENESS_MS_MAX))
        raise InvalidRequest(
            f"max_staleness is {call.query['max_staleness'][:64]!r}; send a time from {low} to {high}, or "
            "read from the leader",
            field="max_staleness",
        )
    return found_ms


def _rack(call: Call) -> str | None:
    rack = call.query.get("rack")
    if rack is not None and not 0 < len(rack) <= RACK_CHARACTERS_MAX:
        raise InvalidRequest(
            f"rack has {len(rack)} characters; send 1 to {RACK_CHARACTERS_MAX}", field="rack"
        )
    return rack


def _bytes_max(limits: Limits) -> parameters.WholeNumber:
    high = limits.fetch_bytes_max
    return parameters.WholeNumber(1, high, min(limits.fetch_bytes_default, high))


def _bytes_min(limits: Limits) -> parameters.WholeNumber:
    return parameters.WholeNumber(0, limits.fetch_bytes_max, 1)


def _places(result: FetchResult, next_offset: int) -> dict[str, str]:
    served_by = {} if result.served_by is None else {headers.SERVED_BY: str(result.served_by)}
    archived = {headers.ARCHIVED: "true"} if result.is_archived else {}
    return {
        **served_by,
        **archived,
        headers.NEXT_OFFSET: str(next_offset),
        headers.HIGH_WATERMARK: str(result.high_watermark),
        headers.LAST_STABLE_OFFSET: str(result.last_stable_offset),
        headers.LOG_START_OFFSET: str(result.log_start_offset),
        headers.LEADER_EPOCH: str(result.leader_epoch),
    }


_FORMAT = Parameter(
    "format",
    "representation of values in JSON: `auto` shows objects and arrays as JSON, other UTF-8 as strings, "
    "and all other values in base64; the other formats show each value in that form, or return 422",
    {"type": "string", "enum": list(FORMATS), "default": "auto"},
)
_UNDECODABLE = Parameter(
    "undecodable",
    "how to handle a stored batch that cannot be decoded (JSON and event streams): `fail` returns 422, "
    "`skip` skips it and lists its offsets",
    {"type": "string", "enum": list(UNDECODABLE), "default": "fail"},
)
_SELECTION = (
    Parameter(
        "tags",
        f"only records with at least one of these tags, separated by commas; 1 to {TAGS_MAX} tags of 1 "
        f"to {TAG_CHARACTERS_MAX} characters without commas and control characters. The next offset is past "
        "skipped records, also in a response without records; binary responses may have other records, too",
        {"type": "string"},
    ),
    Parameter(
        "tags_all",
        "only records with all of these tags; may be combined with `tags` and `tags_none`, "
        f"{TAGS_MAX} tags at most together",
        {"type": "string"},
    ),
    Parameter(
        "tags_none",
        "only records with none of these tags, including records without tags; a tag of `tags` or "
        "`tags_all` is refused here",
        {"type": "string"},
    ),
)
_CLOSEST = (
    Parameter(
        "read_from",
        "which replica is read: `leader` (the default), or `closest`: the replica in the reader's rack if "
        "it is in sync, otherwise the leader. With `route=none` only the replica of the requested broker, "
        "or 421",
        {"type": "string", "enum": list(SOURCES), "default": SOURCES[0]},
    ),
    Parameter(
        "rack",
        "with `read_from=closest`: the reader's rack; the default is the rack of the broker that gets the "
        "request",
        {"type": "string", "minLength": 1, "maxLength": RACK_CHARACTERS_MAX},
    ),
    Parameter(
        "max_staleness",
        "with `read_from=closest`: the replica has at least the records that were committed this long ago; "
        f"{parameters.duration_text(STALENESS_MS_MIN)} to {parameters.duration_text(STALENESS_MS_MAX)}",
        {
            "type": "string",
            "pattern": parameters.DURATION_PATTERN,
            "default": parameters.duration_text(STALENESS_MS_DEFAULT),
        },
    ),
    Parameter(
        "min_offset",
        "the replica has all records below this offset: one past the reader's newest write, so that the "
        "reader sees its write. The read waits for it, at least half a second",
        MIN_OFFSET.schema,
    ),
)
_PARAMETERS = (
    Parameter(
        "offset",
        "the first offset: a number, `earliest` (the default), `latest`, `timestamp:` with RFC 3339 or "
        "milliseconds, or `-100` for the newest 100 records",
        {"type": "string", "pattern": parameters.POSITION_PATTERN, "default": "earliest"},
    ),
    Parameter("limit", "maximum number of records (JSON)", RECORDS.schema),
    Parameter(
        "max_bytes",
        "maximum size of the batches; at least one batch is returned",
        lambda limits: _bytes_max(limits).schema,
    ),
    Parameter(
        "min_bytes",
        "with `wait`: wait until this number of bytes is available",
        lambda limits: _bytes_min(limits).schema,
    ),
    duration("wait", "longest wait for records, such as `30s`", lambda _: 0),
    *_SELECTION,
    _FORMAT,
    _UNDECODABLE,
    ISOLATION,
    ROUTE,
    *_CLOSEST,
    Parameter("Last-Event-ID", "in an event stream: continue after this offset", place="header"),
)

ROUTES = (
    Route(records.FETCH, fetch, (TOPIC, PARTITION, *_PARAMETERS)),
    Route(
        records.DESCRIBE,
        message,
        (
            TOPIC,
            PARTITION,
            Parameter("offset", "offset of a record", parameters.OFFSET.schema, "path"),
            _FORMAT,
            ISOLATION,
        ),
    ),
)
