"""The proxies of chaos runs when their server hangs: it is started again with all that it had."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from chaos.harness import links as links_module
from chaos.harness.links import Link, LinksFailed, missing, started
from raftlog.testing.waits import LIMIT_S, eventually

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(missing() is not None, reason=str(missing()))]

DELAY_MS = 300
HANGS_S = 10.0  # a server that has not answered by then hangs; one that runs answers on a busy machine, too


@contextmanager
def echo_server() -> Iterator[str]:
    """The address of a server that sends back what it gets, on one connection at a time."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, suppress(OSError):
                    while data := connection.recv(100):
                        connection.sendall(data)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.close()


def echo_s(port: int) -> float | None:
    """How long an answer takes; None without one."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S) as connection:
            began = time.monotonic()
            connection.sendall(b"x")
            return time.monotonic() - began if connection.recv(1) else None
    except OSError:
        return None


def is_fast(port: int) -> bool:
    """Whether an answer came without the delay; on a busy machine one of several."""
    took_s = echo_s(port)
    return took_s is not None and took_s < DELAY_MS / 1000


def hang(pid: int) -> None:
    """Stop a process; all of its threads have stopped on return."""
    os.kill(pid, signal.SIGSTOP)
    tasks = Path(f"/proc/{pid}/task")
    while not all(
        (task / "stat").read_text().rpartition(")")[2].split()[0] == "T" for task in tasks.iterdir()
    ):
        time.sleep(0.001)  # threads stop within a tick of the kernel


def test_a_server_that_hangs_is_started_again_with_cuts_and_toxics(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links_module, "REQUEST_S", HANGS_S)
    slow, cut, plain = Link(1, 2), Link(2, 1), Link(0, 1)
    with echo_server() as upstream, started(directory, dict.fromkeys((slow, cut, plain), upstream)) as links:
        links.add_toxic(slow, "late", "latency", "upstream", latency=DELAY_MS)
        links.cut([cut])
        ports = [links.port(link) for link in links.all]
        assert links.own is not None
        hang(links.own.pid)
        links.add_toxic(plain, "late as well", "latency", "upstream", latency=DELAY_MS)
        assert links.restarts == 1
        assert [links.port(link) for link in links.all] == ports
        for link in (slow, plain):
            assert (echo_s(links.port(link)) or 0) >= DELAY_MS / 1000
        assert echo_s(links.port(cut)) is None
        links.remove_toxic(slow, "late")
        links.restore([cut])
        for link in (slow, cut):
            eventually(partial(is_fast, links.port(link)), what=f"{link} without a toxic and without a cut")
        hang(links.own.pid)
        links.remove_toxic(plain, "late as well")
        assert links.restarts == 2
        eventually(partial(is_fast, links.port(plain)), what="a link without its toxic")


def test_a_toxic_that_does_not_exist_is_refused_and_forgotten(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links_module, "REQUEST_S", HANGS_S)
    link = Link(1, 2)
    with echo_server() as upstream, started(directory, {link: upstream}) as links:
        with pytest.raises(LinksFailed, match="refuses"):
            links.add_toxic(link, "x", "drought", "upstream")
        assert links.restarts == 0
        assert links.own is not None
        hang(links.own.pid)
        links.cut([link])  # a server that is started again does not get it, either
        assert links.restarts == 1
