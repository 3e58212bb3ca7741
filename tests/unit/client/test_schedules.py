"""The client's side of schedules, with the HTTP application of a broker."""

from __future__ import annotations

import pytest
from click.testing import CliRunner, Result

from api.cli.commands import app
from raftlog import Client, Conflict, InvalidRequest, UnknownSchedule
from tests.helpers.async_tests import in_virtual_time
from tests.helpers.http_server import ThreadedServer, serve
from tests.helpers.real_cluster import create_topic
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


def run(url: str, *arguments: str, code: int = 0, given: bytes | None = None) -> Result:
    """A command that ends with this code."""
    found = CliRunner().invoke(app, ["schedule", *arguments, "--server", url], input=given)
    assert found.exit_code == code, found.output
    return found


# requirement: A5
def test_the_blocking_client_and_the_command_line_do_the_same() -> None:
    with ThreadedServer() as server, Client(server.url) as client:
        create_topic(server.url, "orders", 1, replication_factor=1)
        assert "there are no schedules" in run(server.url, "list").stderr
        made = run(
            server.url, "create", "orders", "-", "--cron", "30 3 * * *", "--id", "nightly", given=b"check"
        )
        assert (made.stdout.strip(), "next at" in made.stderr) == ("nightly", True)
        assert "30 3 * * *" in run(server.url, "list", "--topic", "orders").stdout
        assert '"cron"' in run(server.url, "list", "--output", "json").stdout
        assert '"check"' in run(server.url, "show", "nightly").stdout
        assert "paused" in run(server.url, "pause", "nightly").stderr
        assert client.schedules.describe("nightly").state == "paused"
        assert "next at" in run(server.url, "resume", "nightly").stderr
        assert client.schedules.pause("nightly").state == "paused"
        assert "deleted" in run(server.url, "delete", "nightly").stderr
        assert client.schedules.list() == []
        assert run(server.url, "show", "nightly", code=1).stdout == ""
        wrong = run(server.url, "create", "orders", "x", "--cron", "0 0 30 2 *", code=1)
        assert "cron" in wrong.stderr
