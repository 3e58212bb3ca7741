"""Errors survive the way through a problem body."""

from __future__ import annotations

import msgspec
import pytest

import raftlog
from raftlog.errors import BY_CODE, Detail, OffsetOutOfRange, RaftlogError
from raftlog.wire.problems import Problem, problem_body, read_problem

NESTED = b'{"code":' + b"[" * 100_000


def sent(error: RaftlogError) -> bytes:
    """The body of a problem as a broker sends it."""
    return msgspec.json.encode(problem_body(error, status=400, title="t", instance="/x", request_id="r-1"))


def test_an_error_has_one_name() -> None:
    """The code is the class's name, and applications import the class from ``raftlog``."""
    for code, kind in BY_CODE.items():
        assert "".join(word.capitalize() for word in code.split("_")) == kind.__name__
        assert getattr(raftlog, kind.__name__) is kind


@pytest.mark.parametrize("kind", [BY_CODE[code] for code in sorted(BY_CODE)])
def test_every_error_comes_back_as_itself(kind: type[RaftlogError]) -> None:
    details: dict[str, Detail] = {"field": "a", "start": 1, "known": None, "yes": True, "errors": ["/a: b"]}
    found = read_problem(sent(kind("what happened", **details)))
    assert type(found) is kind
    assert str(found) == "what happened"
    assert found.details == details


def test_a_problem_has_the_fields_of_rfc_9457() -> None:
    problem = msgspec.json.decode(sent(OffsetOutOfRange("too far", start=0, end=7)), type=Problem)
    assert problem.type == "https://raftlog.dev/problems/offset-out-of-range"
    assert (problem.title, problem.status, problem.detail) == ("t", 400, "too far")
    assert (problem.instance, problem.request_id) == ("/x", "r-1")
    assert (problem.code, problem.retryable) == ("offset_out_of_range", False)


def test_an_unknown_code_and_an_unknown_fact_are_kept() -> None:
    found = read_problem(b'{"code":"new_in_2030","detail":"d","more":{"a":[1]},"retry_after_ms":5}')
    assert type(found) is RaftlogError
    assert found.details == {"more": '{"a":[1]}', "retry_after_ms": 5}


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b"{}", b'{"code":1}', b'{"status":502}', b"\xff", NESTED]
)
def test_what_is_no_problem_of_ours_is_none(body: bytes) -> None:
    assert read_problem(body) is None
