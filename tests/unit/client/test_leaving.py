"""A member that closes leaves its group, whatever is under way."""

from __future__ import annotations

import asyncio

from tests.helpers.async_tests import in_virtual_time
from tests.helpers.virtual_client import VirtualClient
from tests.helpers.whole_broker import TOPIC, Trouble, WholeBroker, whole_broker

JOINS, LEAVES = "POST /v1/groups/g/members", "DELETE /v1/groups/g/members"


async def seen(broker: WholeBroker, part: str) -> None:
    """Return once the broker's proxy has a request of this kind."""
    async with asyncio.timeout(10):
        while not broker.counted(part):
            await asyncio.sleep(0.01)


# requirement: G3
@in_virtual_time
async def test_a_join_that_arrives_after_the_leave_leaves_no_member_behind() -> None:
    async with whole_broker() as broker, VirtualClient(broker.url) as client:
        broker.trouble(JOINS, Trouble.HELD)
        consumer = await client.consumer("g", TOPIC, session_timeout="10s")
        await seen(broker, JOINS)
        closing = asyncio.create_task(consumer.close())
        await seen(broker, LEAVES)
        broker.release.set()
        await closing
        assert (await client.groups.describe("g")).members == []


# requirement: G3
@in_virtual_time
async def test_a_join_without_an_answer_does_not_hold_a_closing_member_for_long() -> None:
    async with whole_broker() as broker, VirtualClient(broker.url) as client:
        broker.trouble(JOINS, Trouble.HELD)
        consumer = await client.consumer("g", TOPIC, session_timeout="10s")
        await seen(broker, JOINS)
        async with asyncio.timeout(15):
            await consumer.close()
