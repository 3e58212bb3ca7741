"""Attacks that hold connections open: unfinished requests, long waits, unread responses, bytes that are not
HTTP.
"""

from __future__ import annotations

import contextlib
import random
import socket
import time
from collections import Counter
from typing import Final
from urllib.parse import urlsplit

from raftlog.wire import media_types
from verification.abuse.target import Attack, Target, raw_exchange

IDLE_MAX: Final = 1_100  # more than a process with 1,024 descriptors can have open
HOLD_S: Final = 5.0
_HOST: Final = b"Host: localhost\r\n"


def _address(target: Target, broker: int) -> tuple[str, int]:
    where = urlsplit(target.urls[broker % len(target.urls)])
    return where.hostname or "", where.port or 0


def idle_connections(target: Target) -> Counter[str]:
    """Open up to ``IDLE_MAX`` idle connections; a request on another connection gets a response or
    a refusal.
    """
    with target.connections(IDLE_MAX) as opened:
        responses = Counter({"opened": len(opened)})
        responses[target.ask("GET", "/healthz/live")[0]] += 1
        time.sleep(HOLD_S * target.scale)
        responses[target.ask("GET", "/metrics")[0]] += 1
    return responses


def announced_bodies(target: Target) -> Counter[str]:
    """Announce request bodies of 16 MiB on many connections, and send one byte of each body."""
    head = (
        f"POST {target.records} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {media_types.JSON}\r\n"
        f"Content-Length: {16 << 20}\r\n\r\n{{"
    ).encode()
    with target.connections(64, head) as opened:
        responses = Counter({"opened": len(opened)})
        time.sleep(HOLD_S * target.scale)
        body, headers = b'{"records":[{"value":1}]}', {"Content-Type": media_types.JSON}
        responses[target.ask("POST", target.records, body, headers)[0]] += 1
    return responses


def readers_that_do_not_read(target: Target) -> Counter[str]:
    """Open event streams from the first record, and fetch requests, and never read the responses."""
    fetch = f"GET {target.records}?offset=earliest HTTP/1.1\r\nHost: localhost\r\n"
    stream = f"{fetch}Accept: text/event-stream\r\n\r\n"
    fetch += "\r\n"
    count = target.times(200)
    with (
        target.connections(count, stream.encode()) as streams,
        target.connections(count, fetch.encode() * 20),
    ):
        for link in streams:
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        time.sleep(HOLD_S * target.scale)
        return Counter({"opened": 2 * count})


def fetches_that_nobody_takes(target: Target) -> Counter[str]:
    """Fetch up to 16 MiB as binary batches from all brokers at once, and never read the responses."""
    part = random.Random(13).randbytes(900_000)
    responses = Counter(
        target.ask("POST", target.records, part, {"Content-Type": media_types.OCTET_STREAM})[0]
        for _ in range(target.times(20))
    )
    fetch = (
        f"GET {target.records}?offset=earliest&max_bytes={16 << 20} HTTP/1.1\r\nHost: localhost\r\n"
        f"Accept: {media_types.BATCH}\r\n\r\n"
    ).encode()
    with contextlib.ExitStack() as stack:
        for broker in range(len(target.urls)):
            opened = stack.enter_context(target.connections(target.times(200), fetch, broker=broker))
            responses["opened"] += len(opened)
        time.sleep(HOLD_S * target.scale)
    return responses


def noise_behind_waits(target: Target) -> Counter[str]:
    """Send random bytes after a request that waits; the broker reads the bytes after its response."""
    wait = f"GET {target.records}?offset=latest&wait=2s HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    with target.connections(target.times(500), wait) as opened:
        for link in opened:
            with contextlib.suppress(OSError):
                link.setblocking(False)
                link.send(b"x" * (700 << 10))
        time.sleep(HOLD_S)
        return Counter({"opened": len(opened)})


def not_http(target: Target) -> Counter[str]:
    """Send random bytes, a TLS handshake, and almost valid HTTP requests."""
    rng = random.Random(11)
    shapes = (
        lambda: rng.randbytes(rng.randint(1, 3000)),
        lambda: b"\x16\x03\x01\x02\x00" + rng.randbytes(500),
        lambda: b"GET / HTTP/1.1\r\n" + _HOST + b"Cookie: " + b"c" * 20_000 + b"\r\n\r\n",
        lambda: b"GET /" + b"p" * 20_000 + b" HTTP/1.1\r\n" + _HOST + b"\r\n",
        lambda: (
            b"GET / HTTP/1.1\r\n"
            + _HOST
            + b"".join(b"h%d: 1\r\n" % number for number in range(1000))
            + b"\r\n"
        ),
        lambda: b"POST / HTTP/1.1\r\n" + _HOST + b"Transfer-Encoding: chunked\r\n\r\nffffffffffff\r\n",
        lambda: b"POST / HTTP/1.1\r\n" + _HOST + b"Content-Length: -1\r\n\r\n",
        lambda: b"GET / HTTP/1.1\r\n\r\n",
        lambda: b"\r\n" * 1000,
    )
    noise = [shapes[number % len(shapes)]() for number in range(target.times(450))]
    return target.at_once(30, lambda at: raw_exchange(_address(target, at), noise[at]), count=len(noise))


def noise_on_node_ports(target: Target) -> Counter[str]:
    """Send bytes that are not a handshake to the ports for connections between brokers."""
    rng = random.Random(12)
    http = b"GET / HTTP/1.1\r\n" + _HOST + b"\r\n"
    noise = [http if at % 3 == 0 else rng.randbytes(rng.randint(1, 4000)) for at in range(target.times(300))]
    ports = target.node_ports
    return target.at_once(30, lambda at: raw_exchange(ports[at % len(ports)], noise[at]), count=len(noise))


def long_waits(target: Target) -> Counter[str]:
    """Send requests that ask the broker to wait for years, on 300 connections, and disconnect."""
    wait = f"GET {target.records}?offset=latest&wait=99999999s HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    with target.connections(target.times(300), wait) as opened:
        time.sleep(HOLD_S * target.scale)
        return Counter({"opened": len(opened)})


ATTACKS: Final = (
    Attack("1,100 idle connections, 1,024 descriptors", idle_connections),
    Attack("64 announced bodies of 16 MiB", announced_bodies),
    Attack("400 readers that do not read", readers_that_do_not_read, bound_mib=256),
    Attack("600 fetches that nobody takes", fetches_that_nobody_takes, bound_mib=256 + 5 * 16 + 2 * 64),
    Attack("noise behind 500 waits", noise_behind_waits, bound_mib=500 * 512 // 1024),
    Attack("bytes that are no HTTP", not_http),
    Attack("noise on the node ports", noise_on_node_ports),
    Attack("300 waits of years", long_waits),
)
