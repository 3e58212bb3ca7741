"""A leader gives out the state that its log begins with, and no other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import msgspec
import pytest

from raftlog.errors import InvalidRequest
from raftlog.node.group.snapshot_transfer import SERVICE, SnapshotService
from raftlog.node.group.view import GroupView
from raftlog.node.network.transport import Transport
from raftlog.node.rpc import Calls, Handler
from raftlog.types import GroupId, Index, NodeId, Term
from tests.helpers.async_tests import in_virtual_time


@dataclass
class States:
    """By the index at which a log may begin."""

    kept: dict[int, bytes]

    def load(self, base: Index) -> bytes | None:
        return self.kept.get(base)


@dataclass
class Log:
    """As much of a log as is asked."""

    first_index: int
    states: States

    def term_at(self, index: Index) -> Term:
        return Term(3)


@dataclass
class Group:
    """One that this broker leads."""

    log: Log
    stopped: BaseException | None = None


def group(first_index: int, **kept: bytes) -> Group:
    """Its log begins there; ``at_10=b"..."`` is a state that is kept."""
    return Group(Log(first_index, States({int(name[3:]): state for name, state in kept.items()})))


def service_of(groups: dict[int, Group]) -> Handler:
    calls = Calls(cast("Transport", None), first_id=0)
    SnapshotService(calls, lambda: cast("dict[GroupId, GroupView]", groups))
    return calls._services[SERVICE.name][1]


async def ask(service: Handler, number: int, index: int, term: int = 3) -> bytes:
    """The state behind this entry."""
    head = msgspec.msgpack.encode([number, term, index, 0])
    _, payload = await service(NodeId(2), head, memoryview(b""))
    return b"".join(payload)


@in_virtual_time
async def test_each_group_gives_out_its_own_state() -> None:
    service = service_of({1: group(10, at_10=b"one"), 2: group(10, at_10=b"two")})
    for _ in range(2):
        assert await ask(service, 1, 9) == b"one"
        assert await ask(service, 2, 9) == b"two"


@in_virtual_time
async def test_a_log_that_begins_later_gives_out_a_later_state() -> None:
    led = group(10, at_10=b"at ten", at_20=b"at twenty")
    service = service_of({1: led})
    assert await ask(service, 1, 9) == b"at ten"
    led.log.first_index = 20
    assert await ask(service, 1, 19) == b"at twenty"
    with pytest.raises(InvalidRequest, match="begins at 20"):
        await ask(service, 1, 9)


@in_virtual_time
async def test_a_state_is_not_given_out_to_who_asks_for_another_term() -> None:
    with pytest.raises(InvalidRequest, match="of term 2"):
        await ask(service_of({1: group(10, at_10=b"one")}), 1, 9, term=2)
