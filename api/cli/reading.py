"""Sends requests that only read, one after another, without an event loop and its imports.

Decides: how often and how long commands that only read try to reach a broker. Leaves to others: the requests
(the classes of the client), and all requests that change something (``connection``, with the whole client).
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Coroutine
from contextlib import suppress
from socket import SHUT_RDWR, socket
from threading import Timer
from typing import TYPE_CHECKING, Final, TypeVar, cast
from urllib.parse import urlsplit

from api.cli import connection
from api.cli.imports import tls_only_for, without_type_extensions
from raftlog.errors import ConnectionLost, Draining, NoLeader, NotSent, RaftlogError

with without_type_extensions():
    from raftlog.client.admin import AsyncBrokers, AsyncCluster, AsyncTopics
    from raftlog.client.asking import Asking
    from raftlog.client.options import broker_urls, seconds, usable_url
    from raftlog.client.replies import Reply, error_of, tls_failure, without_http
    from raftlog.client.retries import pause_s
    from raftlog.client.tls import Tls, load

if TYPE_CHECKING:
    from http.client import HTTPConnection
    from ssl import SSLContext

    from raftlog.client.groups import AsyncGroups
    from raftlog.client.metadata import Metadata
    from raftlog.client.session import Session
    from raftlog.client.transactions import AsyncTransactions

SILENCE_S: Final = 2.0  # silence of a broker in the first round, after which another broker is asked
_CONNECT_S: Final = 2.0
_REFUSED_S: Final = 0.5  # if all addresses refuse for so long, no broker runs
_ANSWER_BYTES_MAX: Final = 16 << 20
Result = TypeVar("Result")


class Reading:
    """The parts of a client that only read. Their methods are coroutines, and ``reading(coroutine)`` returns
    the result.
    """

    def __init__(self, server: str) -> None:
        with tls_only_for(server):
            import http.client  # noqa: F401
        self._asking = _Asking(broker_urls(server))
        self._session = cast("Session", self._asking)  # reading uses no other part of a session
        self.topics = AsyncTopics(self._session, cast("Metadata", None))  # only changes use the metadata
        self.cluster = AsyncCluster(self._session)
        self.brokers = AsyncBrokers(self._session)

    def url_of(self, advertised: str | None) -> str | None:
        """Return the URL that a broker advertises, if this client may use it; see ``usable_url``."""
        return usable_url(self._asking.urls[0], advertised)

    def live_urls(self) -> list[str]:
        """Return the URLs of the brokers that are alive, as far as this client may use them."""
        urls = [self.url_of(broker.http) for broker in self(self.brokers.list()) if broker.alive]
        return [url for url in urls if url is not None]

    @property
    def groups(self) -> AsyncGroups:
        """The part of the client for consumer groups."""
        from raftlog.client.groups import AsyncGroups

        return AsyncGroups(self._session)

    @property
    def transactions(self) -> AsyncTransactions:
        """The part of the client for transactions."""
        from raftlog.client.transactions import AsyncTransactions

        return AsyncTransactions(self._session)

    @property
    def was_reached(self) -> bool:
        """Whether a broker has answered a request."""
        return self._asking.was_reached

    def __call__(self, work: Coroutine[object, object, Result]) -> Result:
        """Run a coroutine and return its result. The coroutine may wait only for requests of this object."""
        with suppress(StopIteration):
            try:
                work.send(None)
            except StopIteration as ended:
                return cast("Result", ended.value)
        raise AssertionError("the coroutine waits for something that is not a request")

    def close(self) -> None:
        """Close all connections to brokers."""
        self._asking.close()


class _Asking(Asking):
    """Sends requests with retries, as ``Session.ask_any`` of the client does."""

    def __init__(self, urls: tuple[str, ...]) -> None:
        self.urls = urls
        self._urls = deque(urls)
        # Files that cannot be used are no reason to ask the next broker.
        self._tls = load(Tls.from_env()) if urls[0].startswith("https:") else None
        self._reasons: dict[str, str] = {}
        self._open: dict[str, HTTPConnection] = {}
        self._rng = random.Random()
        self.was_reached = False

    async def ask_any(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        may_repeat: bool = True,
        retry_timeout_s: float | None = None,
        attempt_timeout_s: float | None = None,
        refusal_settles: bool = False,
    ) -> Reply:
        """Send a GET to any broker and return the response."""
        assert method == "GET"
        assert body is None
        began = time.monotonic()
        attempts = 0
        while True:
            base = self._urls[0]
            try:
                return self._ask(base, path, self._patience_s(attempts, attempt_timeout_s))
            except RaftlogError as error:
                attempts += 1
                if isinstance(error, NotSent | ConnectionLost | Draining | NoLeader):
                    self._urls.rotate(-1)
                is_silence = isinstance(error, NotSent | ConnectionLost)
                is_other_next = is_silence and attempts < len(self._urls)
                pause = 0.0 if is_other_next else pause_s(error, attempts, self._rng)
                if not error.retryable or time.monotonic() + pause - began > self._limit_s(retry_timeout_s):
                    raise self._explained(error) from error
            time.sleep(pause)  # noqa: ASYNC251  # no other task runs

    def close(self) -> None:
        """Close all connections to brokers."""
        for each in self._open.values():
            each.close()

    def _limit_s(self, retry_timeout_s: float | None) -> float:
        """Return the time limit in seconds of a call including all its retries."""
        if self.was_reached:
            return seconds("retry", connection.RETRY_TIMEOUT) if retry_timeout_s is None else retry_timeout_s
        if len(self._reasons) == len(self._urls):
            return _REFUSED_S
        return seconds("probe", connection.PROBE_TIMEOUT) * len(self._urls)

    def _patience_s(self, attempts: int, attempt_timeout_s: float | None) -> float:
        is_first_round = len(self._urls) > 1 and attempts < len(self._urls)
        limit_s = SILENCE_S if is_first_round else attempt_timeout_s or 10.0
        return limit_s if self.was_reached else min(limit_s, seconds("probe", connection.PROBE_TIMEOUT))

    def _explained(self, error: RaftlogError) -> RaftlogError:
        if not isinstance(error, NotSent):
            return error
        return NotSent("; ".join(["no broker answered", *self._reasons.values()]))

    def _ask(self, base: str, path: str, limit_s: float) -> Reply:
        from http.client import HTTPException

        http = self._connected(base, limit_s)
        try:
            reply = answer_of(http, path, limit_s)
        except (OSError, HTTPException) as error:
            http.close()
            is_late = isinstance(error, TimeoutError)
            why = f"no response within {limit_s:g} s" if is_late else str(error)
            if not is_late and not self.was_reached:
                why = without_http(base, why)
            raise ConnectionLost(f"GET {base}{path.split('?')[0]}: {why}") from error
        problem = error_of(reply, "GET", base + path) if reply.status >= 300 else None
        if not isinstance(
            problem, ConnectionLost
        ):  # a lost connection means that no broker wrote the response
            self.was_reached = True
        if problem is not None:
            raise problem
        return reply

    def _connected(self, base: str, limit_s: float) -> HTTPConnection:
        """Return an open connection to a broker; it is kept for later requests."""
        http = self._open.get(base) or opened(base, min(limit_s, _CONNECT_S), self._tls)
        if http.sock is None:  # also true after a response with "Connection: close"
            try:
                http.connect()
            except (OSError, UnicodeError) as error:
                self._reasons[base] = f"{base} cannot be reached: {_reason(error)}"
                raise NotSent(self._reasons[base]) from error
            self._open[base] = http
        return http


def _reason(error: OSError | UnicodeError) -> str:
    if isinstance(error, UnicodeError):
        return "this is not a valid host name"
    return tls_failure(error) or error.strerror or str(error)


def opened(base: str, timeout_s: float, tls: SSLContext | None = None) -> HTTPConnection:
    """Create a connection to an address; the first request on it connects. Without ``tls``, a connection with
    TLS uses the files that the environment names. Raises ``NotSent`` if they cannot be used.
    """
    from http.client import HTTPConnection

    address = urlsplit(base)
    if address.scheme == "https":
        return _with_tls(address.hostname or "", address.port, timeout_s, tls or load(Tls.from_env()))
    return HTTPConnection(address.hostname or "", address.port, timeout=timeout_s)


def _with_tls(host: str, port: int | None, timeout_s: float, tls: SSLContext) -> HTTPConnection:
    """Create a TLS connection, also if ``http.client`` was imported without TLS: brokers may advertise https
    addresses.
    """
    from http.client import HTTPConnection

    class Connection(HTTPConnection):
        default_port = 443

        def connect(self) -> None:
            super().connect()
            self.sock = tls.wrap_socket(self.sock, server_hostname=self.host)

    return Connection(host, port, timeout=timeout_s)


def answer_of(http: HTTPConnection, path: str, limit_s: float) -> Reply:
    """Return the complete response to a GET within ``limit_s``. Raises ``OSError`` and ``HTTPException``."""
    from http.client import IncompleteRead

    if http.sock is None:
        http.connect()
    http.sock.settimeout(limit_s)  # this limit restarts with each received byte
    began = time.monotonic()
    timer = Timer(limit_s, _end, [http.sock])
    timer.daemon = True
    timer.start()
    try:
        http.request("GET", path, headers={"Accept": "application/json", "User-Agent": "raftlog-python"})
        answer = http.getresponse()
        body = answer.read(_ANSWER_BYTES_MAX)
        if answer.length or len(body) == _ANSWER_BYTES_MAX:
            raise IncompleteRead(body, answer.length)
        return Reply(answer.status, body, dict(answer.headers))
    except Exception:
        if time.monotonic() - began >= limit_s:
            raise TimeoutError from None
        raise
    finally:
        timer.cancel()


def _end(connected: socket) -> None:
    with suppress(OSError):
        connected.shutdown(SHUT_RDWR)
