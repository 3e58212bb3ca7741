"""The client's side of delayed messages, with the HTTP application of a broker."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from raftlog import DelayedAlreadyDelivered, InvalidRequest, UnknownDelayed, UnknownTopic
from tests.helpers.async_tests import in_virtual_time
from tests.helpers.http_server import serve
from tests.helpers.virtual_client import VirtualClient


# requirement: A3
@in_virtual_time
async def test_a_message_is_sent_listed_changed_and_cancelled() -> None:
    async with serve() as server, VirtualClient(server.url) as client:
        await server.topic()
        delayed = client.delayed
        now_ms = server.cluster.services.clock.wall_ms()
        one = await delayed.send(
            "orders", b"\xff", key=b"\xfe", headers={"a": b"\xfd"}, tags=["t"], delay="30m"
        )
        assert 1_800_000 <= one.deliver_at_ms - now_ms < 1_860_000
        shown = await delayed.describe(one.id)
        assert (shown.key, shown.key_encoding) == ("/g==", "base64")
        assert (bytes(shown.value), shown.encoding) == (b'"/w=="', "base64")
        assert (shown.headers_raw, shown.tags) == ([("a", "/Q==")], ["t"])
        later = datetime.fromtimestamp(now_ms / 1000, UTC) + timedelta(hours=3)
        two = await delayed.send("orders", {"id": 1}, deliver_at=later, partition=2)
        assert (two.partition, two.deliver_at_ms) == (2, int(later.timestamp() * 1000))
        assert [item.delayed_id for item in await delayed.list("orders")] == sorted([one.id, two.id])
        assert (
            await delayed.reschedule(one.id, deliver_at=two.deliver_at_ms)
        ).deliver_at == two.deliver_at_ms
        assert await delayed.cancel(one.id)
        assert await delayed.cancel(one.id)
        with pytest.raises(UnknownDelayed):
            await delayed.describe(one.id)
        assert [item.delayed_id for item in await delayed.list()] == [two.id]


# requirement: A3
@in_virtual_time
async def test_what_comes_too_late_is_told_so() -> None:
    async with serve() as server, VirtualClient(server.url) as client:
        await server.topic()
        one = await client.delayed.send("orders", "x", delay=0)
        assert not await client.delayed.cancel(one.id)
        with pytest.raises(DelayedAlreadyDelivered):
            await client.delayed.reschedule(one.id, delay="1s")
        with pytest.raises(InvalidRequest):
            await client.delayed.send("orders", "x")
        with pytest.raises(InvalidRequest):
            await client.delayed.send("orders", "x", delay="1s", deliver_at=5)
        with pytest.raises(UnknownTopic):
            await client.delayed.send("nowhere", "x", delay="1s")
