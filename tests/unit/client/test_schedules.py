"""The client's side of schedules, with the HTTP application of a broker."""

from __future__ import annotations

import pytest

from raftlog import Conflict, InvalidRequest, UnknownSchedule
from tests.helpers.async_tests import in_virtual_time
from tests.helpers.http_server import serve
from tests.helpers.virtual_client import VirtualClient


# requirement: A5
@in_virtual_time
async def test_a_schedule_is_created_listed_paused_and_deleted() -> None:
    async with serve() as server, VirtualClient(server.url) as client:
        await server.topic()
        schedules = client.schedules
        one = await schedules.create(
            "orders", b"\xff", cron="0 3 * * *", key=b"\xfe", headers={"a": b"\xfd"}, tags=["t"]
        )
        assert (one.key, one.key_encoding, bytes(one.value)) == ("/g==", "base64", b'"/w=="')
        assert (one.headers_raw, one.tags, one.state) == ([("a", "/Q==")], ["t"], "active")
        two = await schedules.create(
            "orders", 1, cron="0 4 * * *", time_zone="Europe/Berlin", schedule_id="z"
        )
        assert {each.schedule_id for each in await schedules.list("orders")} == {one.schedule_id, "z"}
        assert (await schedules.pause("z")).state == "paused"
        assert (await schedules.resume("z")).next_at == two.next_at
        assert (await schedules.describe("z")).time_zone == "Europe/Berlin"
        with pytest.raises(Conflict):
            await schedules.create("orders", 2, cron="0 4 * * *", schedule_id="z")
        with pytest.raises(InvalidRequest, match="cron"):
            await schedules.create("orders", 2, cron="0 0 30 2 *")
        await schedules.delete("z")
        await schedules.delete("z")
        with pytest.raises(UnknownSchedule):
            await schedules.describe("z")
        assert [each.schedule_id for each in await schedules.list()] == [one.schedule_id]
