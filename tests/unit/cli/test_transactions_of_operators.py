"""``raftlog transaction`` with the HTTP application of a broker."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from api.cli.commands import app
from tests.helpers.http_server import ThreadedServer
from tests.helpers.real_cluster import call


@pytest.fixture
def url() -> Iterator[str]:
    with ThreadedServer() as server:
        yield server.url


def run(url: str, *arguments: str, code: int = 0) -> Result:
    """A command that ends with this code."""
    found = CliRunner().invoke(app, ["transaction", *arguments, "--server", url])
    assert found.exit_code == code, found.output
    return found


def prepared(url: str, name: str) -> str:
    """The id of a transaction that is open."""
    one = call(url, "POST", "/v1/transactions", {"transactional_id": name}).json["id"]
    assert call(url, "POST", f"/v1/transactions/{one}:prepare").status == 200
    return str(one)


# requirement: D3
def test_open_transactions_are_listed_described_and_aborted(url: str) -> None:
    assert run(url, "list", "-o", "json").stdout == "[]\n"
    assert "there are no open transactions" in run(url, "list").stderr
    one = prepared(url, "sink~1")
    (shown,) = json.loads(run(url, "list", "-o", "json").stdout)
    assert (shown["id"], shown["state"]) == (one, "prepared")
    assert one in run(url, "list").stdout
    for name in (one, "sink~1"):
        assert json.loads(run(url, "describe", name, "-o", "json").stdout) == shown
    aborted = run(url, "abort", "sink~1")
    assert "nothing is open in sink~1" in aborted.stderr
    assert json.loads(run(url, "describe", one, "-o", "json").stdout)["state"] == "aborted"
    assert run(url, "list", "-o", "json").stdout == "[]\n"
    assert "sink~1" in run(url, "list", "--all").stdout


def test_an_abort_names_a_transactional_id(url: str) -> None:
    one = prepared(url, "sink~1")
    assert "name the transactional id alone: sink~1" in run(url, "abort", one, code=2).stderr
    assert "transaction_not_found" in run(url, "abort", "nobody", code=1).stderr


# requirement: D3
def test_offsets_in_an_open_transaction_are_described(url: str) -> None:
    assert call(url, "POST", "/v1/topics", {"name": "orders"}).status == 201
    one = call(url, "POST", "/v1/transactions", {"transactional_id": "copy-1"}).json["id"]
    body = {"group": "enrich", "offsets": [{"topic": "orders", "partition": 0, "offset": 0}]}
    assert call(url, "POST", f"/v1/transactions/{one}:add-offsets", body).status == 200
    assert json.loads(run(url, "describe", "copy-1", "-o", "json").stdout)["groups"] == ["enrich"]
    assert "enrich" in run(url, "list").stdout
    pending = {"topic": "orders", "partition": 0, "offset": 0, "transaction": one}
    arguments = ["group", "describe", "enrich", "--server", url]
    described = CliRunner().invoke(app, [*arguments, "-o", "json"])
    assert json.loads(described.stdout)["pending"] == [pending]
    assert str(one) in CliRunner().invoke(app, arguments).stdout
