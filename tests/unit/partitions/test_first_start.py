"""When a broker without a metadata log begins a cluster, and when it rejoins one."""

from __future__ import annotations

import asyncio
import random
from typing import cast

import pytest

from partitions.hosting.first_start import FirstStart
from raftlog.errors import ConnectionLost
from raftlog.node.group_host import GroupHost
from raftlog.node.rpc import encode_body
from raftlog.storage.replica_registry import ReplicaRegistry
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.types import NodeId
from tests.helpers.async_tests import in_virtual_time
from tests.helpers.virtual_time import VirtualClock

OTHERS = (NodeId(2), NodeId(3))


class Answering:
    """The other brokers: what each says, or nothing."""

    def __init__(self, **answers: bool | None) -> None:
        self.answers = {NodeId(int(name[1:])): answer for name, answer in answers.items()}

    async def call(self, peer: NodeId, *_: object, timeout_ms: int) -> tuple[bytes, memoryview]:
        answer = self.answers.get(peer)
        if answer is None:
            raise ConnectionLost("it is down", sent=False)
        return encode_body(answer), memoryview(b"")


class Host:
    """A host that hears some brokers, one of them later."""

    def __init__(self, calls: Answering, heard: set[int], later: int | None) -> None:
        self.calls, self.clock = calls, VirtualClock()
        self._heard, self._later = heard, later

    @property
    def reachable_peers(self) -> frozenset[NodeId]:
        is_later = self._later is not None and self.clock.monotonic() >= 0.8
        return frozenset(map(NodeId, {*self._heard, *({self._later} if is_later else ())}))


def first_start(
    others: Answering,
    *,
    heard: set[int],
    has_joined: bool = False,
    peers: tuple[NodeId, ...] = OTHERS,
    later: int | None = None,
    listens_s: float = 0.0,
) -> FirstStart:
    """One broker's, with an empty disk."""
    host = Host(others, heard, later)
    disk = FakeFilesystem()
    return FirstStart(
        cast("GroupHost", host),
        peers,
        disk,
        "/data/__metadata",
        ReplicaRegistry.open(disk, "/data", random.Random(1)),
        asyncio.to_thread,
        has_joined=has_joined,
        listens_s=listens_s,
    )


@in_virtual_time
async def test_it_begins_only_when_all_others_say_that_they_know_no_cluster() -> None:
    assert not await first_start(Answering(n2=False, n3=False), heard={2, 3}).is_over()
    assert await first_start(Answering(n2=True), heard={2}).is_over()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(60):
            await first_start(Answering(n2=False), heard={2}).is_over()


# requirement: F6
@in_virtual_time
async def test_a_broker_that_is_in_no_file_proves_that_there_is_a_cluster() -> None:
    assert await first_start(Answering(n2=False, n3=False), heard={2, 3, 4}).is_over()


# requirement: F6
@in_virtual_time
async def test_the_only_first_broker_listens_for_those_that_came_later() -> None:
    alone = first_start(Answering(), heard=set(), peers=(), later=4, listens_s=2.0)
    assert await alone.is_over(), "it has lost its disk"
    assert not await first_start(Answering(), heard=set(), peers=(), listens_s=2.0).is_over()


# requirement: F2
@in_virtual_time
async def test_a_broker_that_has_joined_begins_none_whoever_answers() -> None:
    for answers in (Answering(n2=False, n3=False), Answering()):
        assert await first_start(answers, heard=set(), has_joined=True).is_over()
