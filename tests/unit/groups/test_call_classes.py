"""The class of the call that brings a request to the coordinator of its group."""

from __future__ import annotations

from typing import get_args

import msgspec

from groups.requests import (
    AddOffsets,
    Commit,
    DeleteGroup,
    DeleteOffsets,
    EndOffsets,
    Heartbeat,
    Join,
    Leave,
    ReadGroup,
    Request,
    Sync,
)
from groups.service import ASK
from queues.requests import Abandon, DeleteQueue, ReadQueue, Receive, Reopen, Settle
from raftlog.hosting.coordinator_service import Ask
from raftlog.node.rpc import encode_body
from raftlog.node.rpc_classes import CallClass

OF_A_TOPIC = {"group": "g", "topic": "t"}
RECEIVE = Receive(**OF_A_TOPIC, topic_id="i", lease=b"", count_max=1, lease_ms=1_000, deliveries_max=5)
WAITING: list[Request] = [
    Join(group="g", member_id="m", topics=("t",)),
    Sync(group="g", member_id="m", generation=1, is_auto=True),  # not everybody who asks for a plan leads
    Heartbeat(group="g", member_id="m", generation=1, wait_ms=1),
    Leave(group="g", member_id="m"),
    msgspec.structs.replace(RECEIVE, wait_ms=1),
]
AT_ONCE: list[Request] = [
    Heartbeat(group="g", member_id="m", generation=1),
    RECEIVE,
    Commit(group="g", offsets=()),
    AddOffsets(group="g", offsets=(), producer_id=1, epoch=1, transaction="t"),
    EndOffsets(group="g", producer_id=1, epoch=1, is_commit=True),
    ReadGroup(group="g"),
    DeleteOffsets(group="g", targets=()),
    DeleteGroup(group="g"),
    Settle(**OF_A_TOPIC, tokens=(), how="ack"),
    Abandon(**OF_A_TOPIC, lease=b""),
    Reopen(**OF_A_TOPIC, topic_id="i", jobs=()),
    ReadQueue(**OF_A_TOPIC),
    DeleteQueue(**OF_A_TOPIC),
]


def class_of(head: bytes) -> CallClass:
    assert ASK.kind_of is not None
    return ASK.kind_of(head)


def test_a_request_that_may_wait_is_of_another_class_than_those_that_are_answered_at_once() -> None:
    # requirement: C4
    for kind, requests in ((CallClass.GROUP_WAIT, WAITING), (CallClass.GROUPS, AT_ONCE)):
        for request in requests:
            assert class_of(encode_body(Ask(1, 1_000, request))) is kind, request
    assert {type(request) for request in (*WAITING, *AT_ONCE)} == {*get_args(Request)}


def test_a_request_of_a_newer_broker_is_of_the_class_that_is_answered_at_once() -> None:
    assert class_of(encode_body([1, 1_000, ["new", "g", 7]])) is CallClass.GROUPS
