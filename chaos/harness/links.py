"""Runs every link of the cluster through its own proxy of a toxiproxy server, which changes connections.

A link has a direction: broker 1 connects to broker 2 through another proxy than broker 2 to broker 1, and
each broker has one proxy for its clients. Frames from 1 to 2 travel on the connection that 1 has opened, so
cutting one proxy cuts one direction.

Needs the server of toxiproxy 2.x (``toxiproxy-server``); ``missing`` says how to install it. If a server that
this process started hangs, it is restarted (``ProxyServer``) with the cuts and toxics of the active faults.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from chaos.cluster_view import POLL_S
from chaos.ports import free_ports
from raftlog.extras import install_command
from raftlog.testing.waits import LIMIT_S

if TYPE_CHECKING:
    from toxiproxy import Toxiproxy

SERVER: Final = "toxiproxy-server"
PACKAGE: Final = "github.com/Shopify/toxiproxy/v2/cmd/server@v2.5.0"
IMAGE: Final = "ghcr.io/shopify/toxiproxy:2.5.0"
REQUEST_S: Final = 30.0  # the server itself gives up after 25 s
_BYTES: Final = re.compile(r"bytes_(?:sent|received):(\d+)")


class LinksFailed(Exception):
    """The proxy server did not start, or refused a request."""


@dataclass(frozen=True, order=True, slots=True)
class Link:
    """The way from a broker, or from clients (0), to a broker."""

    source: int
    target: int

    def __str__(self) -> str:
        return f"clients -> {self.target}" if self.source == 0 else f"{self.source} -> {self.target}"


def find_server() -> Path | None:
    """Find the program of the server: in the environment variable TOXIPROXY_SERVER, in PATH, or where ``go
    install`` puts it.
    """
    named = os.environ.get("TOXIPROXY_SERVER")
    candidates = (named and shutil.which(named), shutil.which(SERVER), Path(".cache", SERVER))
    return next((Path(found).absolute() for found in candidates if found and Path(found).exists()), None)


def missing() -> str | None:
    """Return the reason why there are no proxies on this machine, and the remedy; None if proxies can run."""
    if find_spec("toxiproxy") is None:
        return f"a library is missing: {install_command('chaos')}"
    if shutil.which("ss") is None:
        return "the program ss is missing, which counts the effects: install the package iproute2"
    if find_server() is not None:
        return None
    return (
        f"{SERVER} 2.x is missing. With Go: `go install {PACKAGE}` creates the program `server`; set the "
        f"environment variable TOXIPROXY_SERVER to its path. In Docker: the image {IMAGE} has it"
    )


@dataclass(frozen=True, slots=True)
class _Toxic:
    kind: str
    stream: str
    attributes: Mapping[str, int]


class Links:
    """The proxies of a running server, which are named ``1-to-2`` and, for clients, ``0-to-2``.

    All methods raise ``LinksFailed``. Brokers and clients reach the proxies at ``host``. Requests to the
    server only apply the state in ``_cuts`` and ``_toxics``.
    """

    def __init__(self, server: Toxiproxy, host: str, own: ProxyServer | None = None) -> None:
        """``own`` is the process of the server if this process started it, otherwise None."""
        self.host = host
        self.restarts = 0  # restarts of a server that hung; each ends all connections
        self.own = own
        listens = {_link(name): proxy.listen for name, proxy in server.proxies().items()}
        self._ports = {link: int(listen.rpartition(":")[2]) for link, listen in listens.items()}
        self._cuts = dict.fromkeys(self._ports, 0)  # number of faults that cut a link
        self._toxics: dict[tuple[Link, str], _Toxic] = {}
        self._lock = threading.RLock()

    @property
    def all(self) -> list[Link]:
        """All links of the cluster; the links of clients come first."""
        return sorted(self._ports)

    def port(self, link: Link) -> int:
        """Return the port that the source of a link connects to."""
        return self._ports[link]

    def url(self, broker: int) -> str:
        """Return the URL that clients of a broker connect to."""
        return f"http://{self.host}:{self.port(Link(0, broker))}"

    def between(self, one: Collection[int], other: Collection[int]) -> list[Link]:
        """Return the links, in both directions, between each broker in ``one`` and each broker in
        ``other``.
        """
        return [
            link
            for link in self.all
            if (link.source in one and link.target in other) or (link.source in other and link.target in one)
        ]

    def cut(self, links: Sequence[Link]) -> int:
        """End the connections of links and refuse new connections; return how many connections ended."""
        with self._lock:
            for link in links:
                self._cuts[link] += 1
            new = [link for link in links if self._cuts[link] == 1]
            ended = len(self.connections(new)) if new else 0
            for link in new:
                self._enable(link, False)
            return ended

    def restore(self, links: Iterable[Link]) -> None:
        """Undo ``cut``; a link that two faults have cut stays cut until both have ended."""
        with self._lock:
            for link in links:
                self._cuts[link] -= 1
                if self._cuts[link] == 0:
                    self._enable(link, True)

    def add_toxic(self, link: Link, name: str, kind: str, stream: str, **attributes: int) -> None:
        """Add a toxic of toxiproxy with a name to a link, for the bytes ``upstream`` or ``downstream``."""
        toxic = self._toxics[link, name] = _Toxic(kind, stream, attributes)
        try:
            self._ask(lambda: _add(link, name, toxic))
        except LinksFailed:
            del self._toxics[link, name]
            raise

    def remove_toxic(self, link: Link, name: str) -> None:
        """Remove a toxic from a link."""
        self._toxics.pop((link, name), None)
        self._ask(lambda: _remove(link, name))

    def connections(self, links: Iterable[Link]) -> dict[str, int]:
        """Return the sources of open connections on these links, with the number of bytes that each
        connection has passed.
        """
        ports = " or ".join(f"sport = :{self._ports[link]}" for link in links)
        command = ["ss", "-tinHO", "state", "established", f"( {ports} )"]
        shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=LIMIT_S).stdout
        return {
            " ".join(line.split()[2:4]): sum(int(number) for number in _BYTES.findall(line))
            for line in shown.splitlines()
        }

    def _enable(self, link: Link, enabled: bool) -> None:
        self._ask(lambda: _enable(link, enabled))

    def _ask(self, request: Callable[[], None]) -> None:
        """Send a request to the server; restart the server if it hangs.

        When a toxic is removed from a connection that has ended, the server may wait for this connection
        forever. It then answers no request about the proxy, or answers 503 without JSON (issues 427 and 558
        of toxiproxy).
        """
        from toxiproxy.exceptions import InvalidToxic

        restarts = self.restarts
        try:
            request()
        except InvalidToxic as error:
            raise LinksFailed(f"toxiproxy refuses a toxic: {error}") from error
        except (OSError, ValueError) as error:  # errors of requests and of json
            with self._lock:
                if self.restarts == restarts:
                    self._start_again(error)

    def _start_again(self, reason: Exception) -> None:
        if self.own is None:
            raise LinksFailed(f"the proxy server hangs: {reason}; restart it") from reason
        try:
            self.own.start_again()
        except ServerFailed as failure:
            raise LinksFailed(str(failure)) from failure
        self.restarts += 1
        for link, count in self._cuts.items():
            if count:
                _enable(link, False)
        for (link, name), toxic in [*self._toxics.items()]:
            _add(link, name, toxic)


def _enable(link: Link, enabled: bool) -> None:
    from toxiproxy.api import APIConsumer

    url = f"/proxies/{_name(link)}"
    _check(APIConsumer.post(url, json={"enabled": enabled}, timeout=REQUEST_S).json(), url)


def _add(link: Link, name: str, toxic: _Toxic) -> None:
    from toxiproxy.api import APIConsumer
    from toxiproxy.exceptions import ProxyExists

    url = f"/proxies/{_name(link)}/toxics"
    wanted = {"name": name, "type": toxic.kind, "stream": toxic.stream, "attributes": dict(toxic.attributes)}
    with suppress(ProxyExists):  # it was added when the server restarted
        _check(APIConsumer.post(url, json=wanted, timeout=REQUEST_S).json(), url)


def _remove(link: Link, name: str) -> None:
    from toxiproxy.api import APIConsumer
    from toxiproxy.exceptions import NotFound

    url = f"/proxies/{_name(link)}/toxics/{name}"
    with suppress(NotFound):  # the server restarted without it
        if not APIConsumer.delete(url, timeout=REQUEST_S):
            raise ValueError(f"{url} was not removed")


def _check(answer: object, url: str) -> None:
    """Raise ``LinksFailed`` unless the response to a change shows the new state."""
    if not isinstance(answer, dict) or "name" not in answer:
        raise ValueError(f"{url}: {answer}")


def attach(api: str) -> Links:
    """Attach to a running server, by the URL of its API. Raises ``LinksFailed``."""
    from toxiproxy import Toxiproxy

    where = urlsplit(api)
    server = Toxiproxy()
    server.update_api_consumer(where.hostname, where.port or 8474)
    if not server.running():
        raise LinksFailed(f"no proxy server responds at {api}")
    return Links(server, str(where.hostname))


@contextmanager
def started(directory: Path, upstreams: Mapping[Link, str], host: str = "127.0.0.1") -> Iterator[Links]:
    """Run a proxy server with a proxy for each link, until the block ends. Raises ``LinksFailed``.

    ``upstreams`` has the real address of each link's target; ``host`` is the address on which the proxies
    listen.
    """
    from toxiproxy import Toxiproxy

    program = find_server()
    if program is None:
        raise LinksFailed(missing())
    own = ProxyServer(
        program, directory / "toxiproxy.log", host, {_name(one): to for one, to in upstreams.items()}
    )
    try:
        own.start()
        yield Links(Toxiproxy(), host, own)
    except ServerFailed as failure:
        raise LinksFailed(str(failure)) from failure
    finally:
        own.stop()


def _name(link: Link) -> str:
    return f"{link.source}-to-{link.target}"


def _link(name: str) -> Link:
    source, _, target = name.partition("-to-")
    if not (source.isdigit() and target.isdigit()):
        raise LinksFailed(
            f"the proxy {name!r} is not named after a link; name it 1-to-2 or, for clients, 0-to-2"
        )
    return Link(int(source), int(target))


class ServerFailed(Exception):
    """The proxy server did not start."""


class ProxyServer:
    """A server process whose proxies listen on consecutive ports of ``host``; a restart keeps the ports."""

    def __init__(self, program: Path, log: Path, host: str, upstreams: Mapping[str, str]) -> None:
        """``upstreams`` has the address behind each proxy, by the name of the proxy."""
        self._program = program
        self._log = log
        self._host = host
        self._upstreams = upstreams
        self._port = free_ports(len(upstreams) + 1)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        assert self._process is not None, "the server has not been started"
        return self._process.pid

    def start(self) -> None:
        """Start the server; return once all proxies listen. Raises ``ServerFailed``."""
        from toxiproxy import Toxiproxy

        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [self._program, "-port", str(self._port)],
                stdout=log,
                stderr=log,
                env={**os.environ, "LOG_LEVEL": "info"},
            )
        server = Toxiproxy()
        server.update_api_consumer("127.0.0.1", self._port)
        deadline = time.monotonic() + LIMIT_S
        while not server.running():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise ServerFailed(f"the proxy server did not start: {self._log} has its output")
            time.sleep(POLL_S)
        for port, (name, upstream) in enumerate(sorted(self._upstreams.items()), self._port + 1):
            server.create(upstream=upstream, name=name, listen=f"{self._host}:{port}")

    def start_again(self) -> None:
        """Restart a server that may hang. All connections end. Raises ``ServerFailed``."""
        self.stop()
        self.start()

    def stop(self) -> None:
        """Kill the process of the server."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
