"""Parameters of a read that any replica may serve: ``read_from``, ``rack`` and others."""

from __future__ import annotations

from msgspec.structs import replace

from api.http import parameters
from api.http.routes import Call, Parameter
from partitions.values import FetchRequest
from raftlog.errors import InvalidRequest
from raftlog.types import Offset
from raftlog.wire.limits import RACK_CHARACTERS_MAX, STALENESS_MS_DEFAULT, STALENESS_MS_MAX, STALENESS_MS_MIN

SOURCES = ("leader", "closest")
MIN_OFFSET = parameters.WholeNumber(0, parameters.OFFSET_MAX, 0)


def with_closest(call: Call, request: FetchRequest) -> FetchRequest:
    """A read with these parameters of its URL. Raises ``InvalidRequest``."""
    query = call.query
    min_offset = Offset(MIN_OFFSET.of(query, "min_offset"))
    if parameters.one_of(query, "read_from", SOURCES) == "leader":
        for name in ("rack", "max_staleness"):
            if name in query:
                raise InvalidRequest(f"{name} is for read_from=closest; send that, too", field=name)
        return replace(request, min_offset=min_offset) if min_offset else request
    return replace(
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


PARAMETERS = (
    Parameter(
        "read_from",
        "which replica is read: `leader` (the default), or `closest`: the one in the reader's rack, if it is "
        "in sync, and else the leader. With `route=none` only that of the broker asked, or 421",
        {"type": "string", "enum": list(SOURCES), "default": SOURCES[0]},
    ),
    Parameter(
        "rack",
        "with `read_from=closest`: the reader's rack. By default that of the broker asked",
        {"type": "string", "minLength": 1, "maxLength": RACK_CHARACTERS_MAX},
    ),
    Parameter(
        "max_staleness",
        "with `read_from=closest`: the replica knows at least what was committed so long before it was read; "
        f"{parameters.duration_text(STALENESS_MS_MIN)} to {parameters.duration_text(STALENESS_MS_MAX)}",
        {
            "type": "string",
            "pattern": parameters.DURATION_PATTERN,
            "default": parameters.duration_text(STALENESS_MS_DEFAULT),
        },
    ),
    Parameter(
        "min_offset",
        "the replica knows all records below this offset: one past the reader's newest write, so that the "
        "reader sees it. The read waits for it, at least half a second",
        MIN_OFFSET.schema,
    ),
)
