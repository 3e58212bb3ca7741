"""Handlers of the application never run on the thread of the client's event loop."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from raftlog import Client
from raftlog.client.logs import client_logger, flush
from raftlog.client.portal import Portal
from raftlog.testing.waits import eventually
from tests.helpers.async_tests import beside
from tests.helpers.fake_broker import fake_cluster

LIBRARIES = ("aiohttp.client", "aiohttp.internal", "concurrent.futures", "py.warnings")


class Kept(logging.Handler):
    """The threads and texts of records; ``act`` is what it does with each."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, str]] = []
        self.act = lambda record: None

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the record, then act."""
        self.seen.append((threading.current_thread().name, record.getMessage()))
        self.act(record)


@contextmanager
def handler(name: str = "raftlog.client") -> Iterator[Kept]:
    """A handler of a logger, for the time of the block."""
    kept, logger = Kept(), logging.getLogger(name)
    logger.addHandler(kept)
    level = logger.level
    logger.setLevel(logging.INFO)
    try:
        yield kept
    finally:
        logger.setLevel(level)
        logger.removeHandler(kept)


@contextmanager
def open_portal() -> Iterator[Portal]:
    """A portal, for the time of the block."""
    portal = Portal()
    try:
        yield portal
    finally:
        portal.close()


async def log() -> None:
    client_logger().info("from the loop")


# requirement: P6
@pytest.mark.parametrize("name", ["raftlog.client", "raftlog.client.receipts", "asyncio", *LIBRARIES])
def test_what_is_logged_on_the_clients_loop_is_handled_on_another_thread(name: str) -> None:
    async def log() -> None:
        if name == "asyncio":
            asyncio.get_running_loop().call_exception_handler({"message": "said"})
        elif name in LIBRARIES:
            logging.getLogger(name).warning("said")
        else:
            client_logger(name).warning("said")

    with handler(name) as kept, open_portal() as portal:
        portal.call(log)
        eventually(lambda: kept.seen, what="the record")
        client_logger(name).warning("by a thread of the application")
    assert kept.seen == [
        ("raftlog-log", "said"),
        (threading.current_thread().name, "by a thread of the application"),
    ]


# requirement: P6
def test_a_handler_that_waits_or_raises_stops_no_client() -> None:
    release = threading.Event()
    with handler() as kept, open_portal() as portal:
        kept.act = lambda record: release.wait(20) and int("no number")
        for _ in range(3):
            portal.call(log)
        release.set()
        eventually(lambda: len(kept.seen) == 3, what="all records")


def test_the_records_of_a_client_are_handled_before_its_close_returns() -> None:
    with handler() as kept:
        with open_portal() as portal:
            portal.call(log)
        assert len(kept.seen) == 1


# requirement: P6
def test_an_application_that_logs_to_a_topic_goes_on_while_the_client_logs() -> None:
    """The handler's lock is held while its producer waits for room, which the client's loop makes."""
    with beside(fake_cluster()) as cluster, Client(cluster.urls) as client, handler("raftlog") as kept:
        producer = client.producer("orders", buffer_bytes=2_000, linger=0)
        kept.act = lambda record: producer.send("x" * 1_500)  # type: ignore[assignment,return-value]

        async def log_soon() -> None:
            asyncio.get_running_loop().call_soon(client_logger().info, "from the loop")

        for _ in range(20):
            client._portal.call(log_soon)
            logging.getLogger("raftlog").info("of the application")
        eventually(lambda: len(kept.seen) == 40, what="all records")
        producer.flush()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_process_has_a_log_of_its_own() -> None:
    with handler() as kept:
        with open_portal() as portal:
            portal.call(log)
        reading, writing = os.pipe()
        if not (child := os.fork()):
            try:
                with open_portal() as portal:
                    portal.call(log)
                os.write(writing, b"%d" % len(kept.seen))
            finally:
                os._exit(0)  # an error must not let the child run the tests of its parent
        os.waitpid(child, 0)
        assert os.read(reading, 9) == b"2"
    flush()
