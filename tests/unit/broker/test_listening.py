"""A broker whose machine is given by a name is reached at all addresses of the machine."""

from __future__ import annotations

import asyncio
import errno
import random
import socket
from contextlib import closing

import pytest

from api.app import RequestPipeline
from broker.addresses import machines
from raftlog.clock import SystemClock
from raftlog.node.network.tcp_transport import TcpTransport
from raftlog.types import NodeId
from tests.helpers.async_tests import in_real_time, on_both_loops
from tests.helpers.fake_services import fake_cluster
from tests.helpers.http_server import http_listener
from tests.helpers.recording_receiver import RecordingReceiver

IPV4, IPV6 = "127.0.0.1", "::1"
NAMED = machines(["log1.example"], 7070, None)[0].listen_host


def has_ipv6() -> bool:
    """Whether this machine has loopback of IPv6."""
    try:
        with socket.create_server((IPV6, 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


def free_port() -> int:
    """A port that is free for both families."""
    with closing(socket.socket(socket.AF_INET6 if has_ipv6() else socket.AF_INET)) as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


async def reached(port: int) -> list[str]:
    """The loopback addresses at which something accepts connections."""
    found = []
    for host in (IPV4, IPV6):
        try:
            _, writer = await asyncio.open_connection(host, port)
        except OSError:
            continue
        writer.close()
        found.append(host)
    return found


async def reached_brokers() -> list[list[str]]:
    """For HTTP, and for other brokers."""
    http = http_listener(RequestPipeline(fake_cluster(None, 3).services))
    http_port, peer_port = free_port(), free_port()
    peers = TcpTransport(
        NodeId(1), "cluster", bytes(16), NAMED, peer_port, rng=random.Random(1), clock=SystemClock()
    )
    await http.start(NAMED, http_port)
    try:
        await peers.start(RecordingReceiver())
        return [await reached(http_port), await reached(peer_port)]
    finally:
        await peers.stop()
        await http.stop()


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
@on_both_loops
async def test_a_machine_with_a_name_is_reached_by_ipv4_and_ipv6() -> None:
    assert await reached_brokers() == [[IPV4, IPV6]] * 2


class WithoutIpv6(socket.socket):
    """The sockets of a system that knows no IPv6."""

    def __init__(self, family: int = -1, type: int = -1, proto: int = -1, fileno: int | None = None) -> None:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        super().__init__(family, type, proto, fileno)


@in_real_time
async def test_a_machine_without_ipv6_is_reached_by_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "socket", WithoutIpv6)
    assert await reached_brokers() == [[IPV4]] * 2
