"""Which of the named brokers a command uses."""

from __future__ import annotations

import pytest

from api.cli import connection, reading
from tests.helpers.async_tests import beside
from tests.helpers.command_line import invoke
from tests.helpers.fake_broker import fake_cluster
from tests.helpers.no_brokers import frozen_broker, other_service, tls_port

LOOKS, CHANGES, READS = "cluster describe", "topic create t", "consume orders"
COMMANDS = [
    LOOKS,
    "cluster health",
    "group list",
    CHANGES,
    "produce orders",
    READS,
    "consume orders --group g",
]


@pytest.mark.parametrize("frozen_count", [1, 2])
def test_frozen_brokers_that_are_named_first_do_not_stop_a_command(
    frozen_count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "PROBE_TIMEOUT", "400ms")
    monkeypatch.setattr(reading, "SILENCE_S", 0.3)
    with beside(frozen_broker()) as one, beside(frozen_broker()) as other, beside(fake_cluster()) as cluster:
        named = ",".join([*[one, other][:frozen_count], *cluster.urls])
        assert "orders" in invoke(named, "topic", "list").output


@pytest.mark.parametrize("command", COMMANDS)
def test_tls_at_a_port_without_it_is_named(command: str) -> None:
    with beside(fake_cluster()) as cluster:
        url = cluster.urls[0].replace("http:", "https:")
        told = invoke(url, *command.split(), code=4).stderr
    assert "TLS failed" in told
    assert "a port without TLS has http:// or raftlog:// in its address" in told


@pytest.mark.parametrize("command", [LOOKS, CHANGES, READS])
def test_http_at_a_port_with_tls_is_named(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "PROBE_TIMEOUT", "1s")
    with beside(tls_port()) as url:
        assert "a port with TLS has https:// in its address" in invoke(url, *command.split(), code=4).stderr


@pytest.mark.parametrize("command", [LOOKS, CHANGES])
@pytest.mark.parametrize(("status", "is_named"), [("400 Bad Request", True), ("404 Not Found", False)])
def test_a_response_of_400_may_come_from_a_port_with_tls(
    command: str, status: str, is_named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "PROBE_TIMEOUT", "500ms")
    monkeypatch.setattr(connection, "RETRY_TIMEOUT", "500ms")
    with beside(other_service(status)) as url:
        told = invoke(url, *command.split(), code=4).stderr
    assert ("a port with TLS has https:// in its address" in told) == is_named


@pytest.mark.parametrize("command", COMMANDS)
def test_another_scheme_is_named(command: str) -> None:
    told = invoke("ftp://127.0.0.1:7070", *command.split(), code=2).stderr
    assert "has the scheme 'ftp'; use raftlog://, http:// or https://" in told
