"""Output of interactive sessions: ``help`` of the clients, and ``repr`` of the objects that they make."""

from __future__ import annotations

import inspect
import pydoc

import pytest

import raftlog
from raftlog import aio
from tests.helpers.async_tests import beside
from tests.helpers.http_server import serve


@pytest.mark.parametrize("kind", [raftlog.Client, aio.Client])
def test_help_shows_all_parts_of_a_client_with_their_docstrings(kind: type) -> None:
    shown = pydoc.plain(pydoc.render_doc(kind))
    parts = {
        "topics",
        "cluster",
        "brokers",
        "partitions",
        "groups",
        "dead_letters",
        "transactions",
        "delayed",
        "schedules",
    }
    for name in parts | {each for each in vars(kind) if not each.startswith("_")}:
        text = inspect.getdoc(inspect.getattr_static(kind, name))
        assert text, name
        assert f"{name}\n" in shown or f"{name}(" in shown
        assert text.splitlines()[0] in shown


class Own(raftlog.Consumer):
    """A consumer of an application."""


def test_repr_shows_address_and_state() -> None:
    with beside(serve()) as server:
        client = raftlog.Client(server.url)
        producer, consumer = client.producer("orders"), client.consumer("billing", "orders")
        assert repr(client) == f"<raftlog.Client {server.url} open>"
        assert repr(producer) == f"<raftlog.Producer topic='orders' {server.url} open>"
        own = Own(consumer._core, client._portal)
        for each in (consumer, own):
            assert repr(each).startswith("<raftlog.Consumer group='billing' partitions=")
        assert repr(consumer).endswith(f" {server.url} open>")
        client.close()
        assert repr(client) == f"<raftlog.Client {server.url} closed>"
        assert repr(producer).endswith("closed>")
        assert repr(consumer).endswith("closed>")
    assert repr(aio.Client("log.example:7070")) == "<raftlog.aio.Client http://log.example:7070 not open>"
