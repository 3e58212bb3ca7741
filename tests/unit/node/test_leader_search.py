"""The search for a leader holds nothing of a request once it is over."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Hashable

import pytest

from raftlog.errors import NoLeader
from raftlog.node.leader_search import LeaderNotFound, LeaderSearch, Refused
from raftlog.types import NodeId


class Body:
    """The body of a request."""


async def search(*, is_found: bool, is_asked_before: bool) -> weakref.ref[Body]:
    """Ask two brokers, of which the second one leads, perhaps after a refusal from before the search."""
    body = Body()

    async def ask(node: NodeId) -> Body:
        if node == 1 or not is_found:
            raise NoLeader("not here")
        return body

    loop, refused = asyncio.get_running_loop(), None
    if is_asked_before:
        try:
            await ask(NodeId(1))
        except NoLeader as refusal:
            refused = Refused(NodeId(1), loop.time(), refusal)
    searching = LeaderSearch(loop.time() + 0.1).ask(
        lambda: (NodeId(1), NodeId(2)), ask, is_repeatable=None, refused=refused
    )
    if is_found:
        assert await searching is body
    else:
        with pytest.raises(LeaderNotFound):
            await searching
    return weakref.ref(body)


# requirement: N2
@pytest.mark.parametrize("is_found", [True, False])
@pytest.mark.parametrize("is_asked_before", [True, False])
async def test_a_refusal_on_the_way_to_the_leader_keeps_no_request(
    is_found: bool, is_asked_before: bool
) -> None:
    gc.collect()
    gc.disable()
    try:
        held = await search(is_found=is_found, is_asked_before=is_asked_before)
        assert held() is None
    finally:
        gc.enable()


async def test_the_broker_that_has_answered_last_is_known_until_it_does_not_answer() -> None:
    leaders: dict[Hashable, NodeId] = {}

    async def ask(node: NodeId) -> NodeId:
        if node == silent:
            raise NoLeader("not here")
        return node

    async def found(group: str) -> NodeId:
        search = LeaderSearch(asyncio.get_running_loop().time() + 0.1, leaders=leaders, group=group)
        return await search.ask(lambda: (NodeId(1), NodeId(2)), ask, is_repeatable=None)

    silent = 1
    assert await found("a") == 2
    silent = 2
    assert await found("b") == 1
    assert leaders == {"a": 2, "b": 1}
    ask_none = LeaderSearch(asyncio.get_running_loop().time(), leaders=leaders, group="a")
    with pytest.raises(LeaderNotFound):
        await ask_none.ask(lambda: (NodeId(2),), ask, is_repeatable=None)
    assert leaders == {"b": 1}
