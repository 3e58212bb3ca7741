"""Every link of the cluster through a proxy of its own: a toxiproxy server, and what it does to connections.

A link has a direction: broker 1 dials broker 2 through another proxy than broker 2 dials broker 1, and each
broker has one proxy for its clients. Frames from 1 to 2 travel on the connection that 1 dialled, so to cut
one direction is to cut one proxy.

Needs the server of toxiproxy 2.x (``toxiproxy-server``); ``missing`` tells how to install it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from chaos.cluster import free_ports
from chaos.cluster_view import POLL_S

if TYPE_CHECKING:
    from toxiproxy import Toxiproxy

SERVER: Final = "toxiproxy-server"
PACKAGE: Final = "github.com/Shopify/toxiproxy/v2/cmd/server@v2.5.0"
IMAGE: Final = "ghcr.io/shopify/toxiproxy:2.5.0"
START_S: Final = 10.0
_BYTES: Final = re.compile(r"bytes_(?:sent|received):(\d+)")


class LinksFailed(Exception):
    """The proxy server did not start, or refused a request."""


@dataclass(frozen=True, order=True, slots=True)
class Link:
    """From a broker, or from clients (0), to a broker."""

    source: int
    target: int

    def __str__(self) -> str:
        return f"clients -> {self.target}" if self.source == 0 else f"{self.source} -> {self.target}"


def find_server() -> Path | None:
    """The program: that of the environment variable TOXIPROXY_SERVER, of PATH, or of ``go install``."""
    named = os.environ.get("TOXIPROXY_SERVER")
    candidates = (named and shutil.which(named), shutil.which(SERVER), Path(".cache", SERVER))
    return next((Path(found).absolute() for found in candidates if found and Path(found).exists()), None)


def missing() -> str | None:
    """The reason why there are no proxies here, and the remedy; None if there are."""
    if find_spec("toxiproxy") is None:
        return "a library is missing: pip install 'raftlog[chaos]'"
    if shutil.which("ss") is None:
        return "ss is missing, which counts the effects: install the package iproute2"
    if find_server() is not None:
        return None
    return (
        f"{SERVER} 2.x is missing. Where Go is: `go install {PACKAGE}` makes the program `server`, and the "
        f"environment variable TOXIPROXY_SERVER names it. In Docker: the image {IMAGE} has it"
    )


class Links:
    """The proxies of a running server, which are named ``1-to-2`` and, for clients, ``0-to-2``.

    All methods raise ``LinksFailed``. ``host`` is where others reach the proxies.
    """

    def __init__(self, server: Toxiproxy, host: str) -> None:
        self.host = host
        self._proxies = {_link(name): proxy for name, proxy in server.proxies().items()}
        self._ports = {link: int(proxy.listen.rpartition(":")[2]) for link, proxy in self._proxies.items()}
        self._cuts = dict.fromkeys(self._proxies, 0)  # how many faults cut a link
        self._lock = threading.Lock()

    @property
    def all(self) -> list[Link]:
        """All links, those of clients first."""
        return sorted(self._proxies)

    def port(self, link: Link) -> int:
        """Where the source of a link connects to."""
        return self._ports[link]

    def url(self, broker: int) -> str:
        """Where clients of a broker connect to."""
        return f"http://{self.host}:{self.port(Link(0, broker))}"

    def between(self, one: Collection[int], other: Collection[int]) -> list[Link]:
        """Both directions of every pair of two sets of brokers."""
        return [
            link
            for link in self.all
            if (link.source in one and link.target in other) or (link.source in other and link.target in one)
        ]

    def cut(self, links: Sequence[Link]) -> int:
        """End their connections and refuse new ones; returns how many connections were ended."""
        with self._lock:
            for link in links:
                self._cuts[link] += 1
            new = [link for link in links if self._cuts[link] == 1]
            ended = len(self.connections(new)) if new else 0
            for link in new:
                self._proxies[link].disable()
            return ended

    def restore(self, links: Iterable[Link]) -> None:
        """Undo ``cut``; a link that two faults have cut stays cut until both have ended."""
        with self._lock:
            for link in links:
                self._cuts[link] -= 1
                if self._cuts[link] == 0:
                    self._proxies[link].enable()

    def add_toxic(self, link: Link, name: str, kind: str, stream: str, **attributes: int) -> None:
        """A toxic of toxiproxy with a name of its own, on the bytes ``upstream`` or ``downstream``."""
        self._proxies[link].add_toxic(name=name, type=kind, stream=stream, attributes=attributes)
        if self._proxies[link].get_toxic(name) is None:
            raise LinksFailed(f"toxiproxy has no toxic {name!r} of type {kind!r} on link {link}")

    def remove_toxic(self, link: Link, name: str) -> None:
        """It no longer affects the link."""
        self._proxies[link].destroy_toxic(name)

    def connections(self, links: Iterable[Link]) -> dict[str, int]:
        """Open connections of the sources of these links, and the bytes that each has passed so far."""
        ports = " or ".join(f"sport = :{self._ports[link]}" for link in links)
        command = ["ss", "-tinHO", "state", "established", f"( {ports} )"]
        shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout
        return {
            " ".join(line.split()[2:4]): sum(int(number) for number in _BYTES.findall(line))
            for line in shown.splitlines()
        }


def attach(api: str) -> Links:
    """The links of a server that somebody else started, by the URL of its API. Raises ``LinksFailed``."""
    from toxiproxy import Toxiproxy

    where = urlsplit(api)
    server = Toxiproxy()
    server.update_api_consumer(where.hostname, where.port or 8474)
    if not server.running():
        raise LinksFailed(f"no proxy server responds at {api}")
    return Links(server, str(where.hostname))


@contextmanager
def started(directory: Path, upstreams: Mapping[Link, str], host: str = "127.0.0.1") -> Iterator[Links]:
    """A proxy server with a proxy for each link, until the block ends. Raises ``LinksFailed``.

    ``upstreams`` has the true address of each link's target; ``host`` is the address of the proxies.
    """
    from toxiproxy import Toxiproxy

    program = find_server()
    if program is None:
        raise LinksFailed(missing())
    first = free_ports(len(upstreams) + 1)
    with (directory / "toxiproxy.log").open("ab") as log:
        process = subprocess.Popen(
            [program, "-port", str(first)], stdout=log, stderr=log, env={**os.environ, "LOG_LEVEL": "info"}
        )
    try:
        server = Toxiproxy()
        server.update_api_consumer("127.0.0.1", first)
        deadline = time.monotonic() + START_S
        while not server.running():
            if process.poll() is not None or time.monotonic() > deadline:
                raise LinksFailed(
                    f"the proxy server did not start: {directory / 'toxiproxy.log'} has its output"
                )
            time.sleep(POLL_S)
        for port, (link, upstream) in enumerate(sorted(upstreams.items()), first + 1):
            server.create(upstream=upstream, name=_name(link), listen=f"{host}:{port}")
        yield Links(server, host)
    finally:
        process.terminate()
        process.wait()


def _name(link: Link) -> str:
    return f"{link.source}-to-{link.target}"


def _link(name: str) -> Link:
    source, _, target = name.partition("-to-")
    if not (source.isdigit() and target.isdigit()):
        raise LinksFailed(f"the proxy {name!r} is no link; name it as 1-to-2 or, for clients, as 0-to-2")
    return Link(int(source), int(target))
