"""Parses the parameters of URLs and headers: one parser for each kind of value.

Each error names the parameter, the value and the valid values. Unknown and repeated parameters are refused,
so that misspelt options are not ignored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from api.http.json_bodies import time_ms
from api.http.requests import Request
from partitions.values import QUORUM, Acks, AtTime, LastRecords, Position, Start
from raftlog import units
from raftlog.errors import InvalidRequest, PreconditionFailed
from raftlog.records.batch import EPOCH_MAX, SEQUENCE_MAX
from raftlog.records.tags import TagSelection
from raftlog.types import Offset
from raftlog.wire.tags import FIELDS, SEPARATOR, InvalidSelection, checked_selection

OFFSET_MAX = (1 << 63) - 1
ISOLATION = ("committed", "uncommitted")
DURATION_PATTERN = f"^[0-9]{{1,{units.DIGITS_MAX}}}({'|'.join(units.MILLISECONDS)})?$"
POSITION_PATTERN = r"^([0-9]{1,18}|earliest|latest|-[1-9][0-9]{0,16}|timestamp:[0-9]{1,15})$"

_NOTHING: Mapping[str, str] = {}
_ETAG = re.compile(r'"([0-9]{1,18})"')
_NAMED = {"earliest": Start.EARLIEST, "latest": Start.LATEST}


@dataclass(frozen=True, slots=True)
class WholeNumber:
    """The range of a parameter that is a whole number, both bounds included; used to parse requests and to
    describe them.
    """

    low: int
    high: int
    default: int | None = None

    @property
    def schema(self) -> Mapping[str, object]:
        """The range as JSON schema."""
        bounds = {"type": "integer", "minimum": self.low, "maximum": self.high}
        return bounds if self.default is None else {**bounds, "default": self.default}

    def read(self, text: str, name: str) -> int:
        """Parse the number in a text. Raises ``InvalidRequest`` for other texts."""
        return number_between(text, name, low=self.low, high=self.high)

    def of(self, query: Mapping[str, str], name: str) -> int:
        """Return the number in a query. A parameter with a default may be missing from the query."""
        if self.default is not None and name not in query:
            return self.default
        return self.read(query[name], name)


OFFSET = WholeNumber(0, OFFSET_MAX)
PRODUCER_ID = WholeNumber(0, OFFSET_MAX)
PRODUCER_EPOCH = WholeNumber(0, EPOCH_MAX)
PRODUCER_SEQUENCE = WholeNumber(0, SEQUENCE_MAX)


def query_of(
    request: Request, known: frozenset[str], lists: frozenset[str] = frozenset()
) -> Mapping[str, str]:
    """Return the query parameters of a request. Raises ``InvalidRequest`` for unknown and repeated names.

    Names in ``lists`` may be repeated; the result then has only one of the values.
    """
    if not request.query_string:
        return _NOTHING
    pairs = request.query
    query = dict(pairs)
    if len(query) != len(pairs):
        twice = sorted(name for name in query if name not in lists and len(pairs.getall(name)) > 1)
        if twice:
            raise InvalidRequest(
                f"the query parameter {twice[0][:64]!r} is sent twice; send it once", field=twice[0][:64]
            )
    if not query.keys() <= known:
        name = min(query.keys() - known)[:64]
        choices = (
            f"the parameters of this path are {', '.join(sorted(known))}"
            if known
            else "this path has no query parameters"
        )
        raise InvalidRequest(f"there is no query parameter {name!r}; {choices}", field=name)
    return query


def number_between(text: str, name: str, *, low: int, high: int) -> int:
    """Parse an integer between two bounds, both included."""
    if text.isascii() and text.isdigit() and len(text) <= 19 and low <= int(text) <= high:
        return int(text)
    raise InvalidRequest(f"{name} is {text[:64]!r}; send a number from {low} to {high}", field=name)


def duration_ms(query: Mapping[str, str], name: str, default_ms: int) -> int:
    """Parse a duration such as ``250``, ``250ms``, ``30s`` or ``1m``, in milliseconds."""
    text = query.get(name)
    if text is None:
        return default_ms
    found_ms = units.duration_ms(f"{text}ms" if text.isdigit() else text)
    if found_ms is None:
        raise InvalidRequest(
            f"{name} is {text[:64]!r}; send milliseconds or a time such as 250ms, 30s or 1m", field=name
        )
    return found_ms


def duration_text(milliseconds: int) -> str:
    """Return the shortest text of a duration: ``55s``, or ``1500ms`` if not whole seconds."""
    seconds, rest = divmod(milliseconds, 1_000)
    return f"{milliseconds}ms" if rest else f"{seconds}s"


def one_of(query: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    """Parse a query parameter whose value is a word of ``choices``; the first word is the default."""
    text = query.get(name, choices[0])
    if text not in choices:
        raise InvalidRequest(f"{name} is {text[:64]!r}; send {' or '.join(choices)}", field=name)
    return text


def committed_only(query: Mapping[str, str]) -> bool:
    """Parse ``isolation=committed | uncommitted``."""
    return one_of(query, "isolation", ISOLATION) == "committed"


def selection(query: Mapping[str, str]) -> TagSelection | None:
    """Parse ``tags=paid,refunded``, ``tags_all`` and ``tags_none``; None without these parameters."""
    if query.keys().isdisjoint(FIELDS):
        return None  # the usual case
    texts = [query.get(name) for name in FIELDS]
    lists = [None if text is None else text.split(SEPARATOR) if text else [] for text in texts]
    try:
        return checked_selection(*lists)
    except InvalidSelection as error:
        raise InvalidRequest(str(error), field=error.field) from None


def acks(query: Mapping[str, str]) -> Acks:
    """Parse ``acks=0 | 1 | quorum | every | K``."""
    text = query.get("acks")
    return QUORUM if text is None else Acks.parse(text[:64])


def position(text: str, name: str) -> Position:
    """Parse a position in a partition: a number, ``earliest``, ``latest``, ``timestamp:…`` or ``-N``."""
    if text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= OFFSET_MAX:
        return Offset(int(text))
    if text in _NAMED:
        return _NAMED[text]
    if text.startswith("timestamp:"):
        return AtTime(time_ms(text.removeprefix("timestamp:"), name))
    back = text[1:]
    if text.startswith("-") and back.isascii() and back.isdigit() and len(back) <= 18 and int(back):
        return LastRecords(int(back))
    raise InvalidRequest(
        f"{name} is {text[:64]!r}; send a number, earliest, latest, timestamp:2026-01-01T00:00:00Z, "
        "or -100 for the last 100",
        field=name,
    )


def position_or_time(text: str, name: str) -> Position:
    """Parse a position in a partition, or a bare RFC 3339 time."""
    return AtTime(time_ms(text, name)) if "T" in text[4:] and ":" not in text[:10] else position(text, name)


def etag(version: int) -> str:
    """Return the ETag of a resource that was last changed at this metadata version."""
    return f'"{version}"'


def if_match(request: Request) -> int | None:
    """Return the version in ``If-Match``, which the resource must still have; ``None`` if any version will
    do.
    """
    text = request.headers.get("If-Match")
    if text is None or text.strip() == "*":
        return None
    found = _ETAG.fullmatch(text.strip())
    if found is None:
        raise PreconditionFailed(
            f"If-Match {text[:64]!r} is not an ETag of this API, so it cannot match; GET the resource for "
            f"its ETag"
        )
    return int(found[1])


def media_type_of(request: Request) -> str:
    """Return the media type of a body, in lower case and without parameters; empty if missing."""
    return request.headers.get("Content-Type", "").partition(";")[0].strip().lower()


def accepted(headers: Mapping[str, str], offered: tuple[str, ...]) -> str | None:
    """Return the offered media type that the client prefers; ``None`` if it accepts none.

    Without a preference, returns the first offered media type.
    """
    text = headers.get("Accept")
    if text is None or text in offered or text == "*/*":
        return text if text in offered else offered[0]
    wishes: dict[str, float] = {}
    for part in text.split(","):
        name, *options = (piece.strip().lower() for piece in part.split(";"))
        weight = next((option[2:] for option in options if option.startswith("q=")), "1")
        try:
            wishes[name] = float(weight)
        except ValueError:
            wishes[name] = 0.0
    best = max(offered, key=lambda kind: _weight(wishes, kind))
    return best if _weight(wishes, best) > 0 else None


def _weight(wishes: Mapping[str, float], media_type: str) -> float:
    """Return the weight that a client gives to a media type: of the most specific range, such as
    ``text/html``, ``text/*``, ``*/*``.
    """
    family = media_type.partition("/")[0] + "/*"
    return wishes.get(media_type, wishes.get(family, wishes.get("*/*", 0.0)))
