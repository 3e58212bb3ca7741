"""A client in a child process that was forked after it was made."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from raftlog import Client
from raftlog.client.forks import FORKED
from raftlog.records.builder import Record
from raftlog.testing.waits import LIMIT_S
from tests.helpers.running_cluster import running_cluster


def in_a_child(work: Callable[[], object]) -> str:
    """What ``work`` raises in a forked process; nothing if it returns."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(round(LIMIT_S))
        said = ""
        try:
            work()
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        said = answer.read().decode()
    assert os.waitpid(child, 0)[1] == 0, "the child waits for ever"
    return said


# requirement: P6
@pytest.mark.parametrize("call", ["client", "send", "send_all", "flush", "producer"])
def test_a_client_of_another_process_refuses_calls(call: str) -> None:
    with running_cluster() as cluster, Client(cluster.urls) as client, client.producer("orders") as producer:
        producer.send("parent").result(LIMIT_S)
        calls: dict[str, Callable[[], object]] = {
            "client": lambda: client.send("orders", "child"),
            "send": lambda: producer.send("child"),
            "send_all": lambda: producer.send_all([Record(b"child")]),
            "flush": producer.flush,
            "producer": lambda: client.producer("orders"),
        }
        assert in_a_child(calls[call]) == f"RuntimeError: {FORKED}"
        assert producer.send("parent").result(LIMIT_S).offset >= 0
    assert cluster.partition().values().count(b"child") == 0


# requirement: P6
def test_the_close_of_a_client_of_another_process_returns_at_once() -> None:
    with running_cluster() as cluster, Client(cluster.urls) as client:
        client.send("orders", "parent")
        with client._portal._lock:  # as another thread may have held it
            assert in_a_child(client.close) == ""
        client.send("orders", "parent")
