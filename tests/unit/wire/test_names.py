"""Public names of the HTTP API: one word for one thing, in all bodies, parameters and headers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from api.app import ROUTES
from api.http.routes import Route
from api.resources import documentation
from broker.ports import Limits
from raftlog.wire import headers

DOCUMENT: dict[str, Any] = documentation.openapi(ROUTES, "0", Limits())
PRODUCERS = "Raftlog-Producer-"
STANDARD = {"Idempotency-Key", "Idempotency-Replayed"}  # headers that other services have, too

REPLACED = {
    "cursor": "page_token",
    "next": "next_page_token",
    "max": "limit",
    "max_records": "limit",
    "messages": "items",
    "visibility": "lease",
    "term": "leader_epoch",
    "end_offset": "log_end_offset",
    "epoch": "producer_epoch",
    "expected_seq": "expected_sequence",
    "size": "size_bytes",
    "bytes": "size_bytes",
    "began": "began_at",
    "changed": "changed_at",
    "at": "recovered_at",
    "is_automatic": "automatic",
    "is_queue": "queue",
}
"""Names that mean something else, or nothing that a field's name should leave open, and the names to use."""


def _fields(node: object) -> Iterator[str]:
    """The names of all fields below a node of the document."""
    if isinstance(node, dict):
        yield from node.get("properties", {})
        for value in node.values():
            yield from _fields(value)
    elif isinstance(node, list):
        for value in node:
            yield from _fields(value)


@pytest.mark.parametrize(("old", "new"), REPLACED.items())
def test_one_thing_has_one_name_in_all_bodies(old: str, new: str) -> None:
    named = set(_fields(DOCUMENT))
    assert old not in named
    assert new in named or new == "expected_sequence", "details of problems are in no schema"


def test_fields_have_words_in_lower_case_and_say_their_unit_last() -> None:
    for name in _fields(DOCUMENT):
        assert name.replace("-", "_").lower() == name
        assert not name.startswith(("is_", "has_")), "a boolean is an adjective"
        assert not name.startswith(("bytes_", "ms_")), "the unit is the last word"


def test_headers_of_our_own_begin_with_our_name() -> None:
    ours = {value for name, value in vars(headers).items() if name.isupper() and value[:1].isupper()}
    assert {name for name in ours - STANDARD if not name.startswith("Raftlog-")} == set()
    assert {PRODUCERS + word for word in ("Id", "Epoch", "Sequence")} <= ours


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.operation.name)
def test_a_path_names_the_verb_of_its_operation(route: Route) -> None:
    """``partitions.set_archived`` is ``…:set-archived``: an action after a colon is the operation's verb."""
    _, _, action = route.path.rpartition(":") if ":" in route.path else ("", "", "")
    verb = route.operation.name.partition(".")[2].replace("_", "-")
    assert verb.startswith(action)
