"""Planted bugs of bodies that are read once, and stamped where they are."""

from __future__ import annotations

from tests.helpers.planted_bugs import Mutant

_BATCHES = "tests/unit/records/test_batch.py"
_GATEWAY = "tests/scenarios/partitions/test_gateway.py"
_HTTP = "tests/unit/api/test_plain_http.py"
_READER = "tests/unit/records/test_reader.py"

GIVEN_AWAY = (
    Mutant(
        "a produce is repeated with the stamps of the leader before",
        "partitions.routing.gateway:Gateway.append",
        "if is_repeated:",
        "if False:",
        script=_GATEWAY,
    ),
    Mutant(
        "the bytes that a leader keeps are reset for a repetition",
        "raftlog.records.batch:unstamped",
        "view, at = memoryview(bytearray(data)), 0",
        "view, at = memoryview(data), 0",
        script=_BATCHES,
    ),
    Mutant(
        "a repeated batch has the append time of a leader that lost it",
        "raftlog.records.batch:unstamped",
        "if batch.header.is_append_time:",
        "if False:",
        script=_BATCHES,
    ),
    Mutant(
        "a leader that answered before the search is asked again at once",
        "raftlog.node.leader_search:LeaderSearch._noted",
        "self._asked.add(refused.node)",
        "pass",
        equivalent="it answers the same, and the others are asked after it",
    ),
    Mutant(
        "an announced body takes its memory at once",
        "api.http.whole_body:WholeBody.room",
        "_ZEROS[: min(self.missing, STEP_BYTES)]",
        "bytes(self.missing)",
        script=_HTTP,
    ),
    Mutant(
        "a client is ahead of the handler without bound",
        "api.http.whole_body:WholeBody.is_ahead",
        "self._filled >= AHEAD_BYTES_MAX",
        "False",
        script=_HTTP,
    ),
    Mutant(
        "a paused body is not read on",
        "api.http.whole_body:WholeBody.more",
        "resume()",
        "pass",
        script=_HTTP,
    ),
    Mutant(
        "plain records may end before their batch does",
        "raftlog.records.reader:_are_few_and_plain",
        "return at == len(body)",
        "return True",
        script=_READER,
    ),
    Mutant(
        "the offsets of plain records are not looked at",
        "raftlog.records.reader:_are_few_and_plain",
        "offset_delta != delta",
        "False",
        script=_READER,
    ),
)
