"""Sends HTTP requests to one broker, or to any broker with retries.

Decides: which failures are definite (no connection was made) and which leave the outcome unknown, and which
broker is used next. Leaves to others: the leader of a partition (``metadata``).
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import aiohttp
import msgspec
from yarl import URL

from raftlog import tracing
from raftlog.client.asking import Asking
from raftlog.client.detours import Detours
from raftlog.client.environment import Environment
from raftlog.client.logs import client_logger
from raftlog.client.options import usable_url
from raftlog.client.replies import Reply, error_of, tls_failure, without_http
from raftlog.client.retries import pause_s
from raftlog.client.single_attempt import single_attempt, was_never_sent
from raftlog.client.tls import ClientContext, Tls
from raftlog.client.values import encode_json
from raftlog.errors import (
    ConnectionLost,
    Draining,
    InvalidRequest,
    NoLeader,
    NotSent,
    RaftlogError,
)
from raftlog.wire import cluster, headers, media_types

CONNECT_TIMEOUT_S = 2.0
SILENCE_S = 2.0  # of a broker, in the first round, before another broker is asked
_CLOSE_TIMEOUT_S = 1.0  # for requests to a broker that does not read
_TOO_SHORT = 0.05  # last part of a call's time, in which no attempt begins: it would end late
_REFUSED_S = 0.5  # a client without any response fails if every address refuses for this time
ANSWER_BYTES_MAX = 16 << 20  # of a JSON response
_PLAIN_BODY_MAX = 1 << 20  # aiohttp writes larger bodies in pieces only from files

OTHER_LOOP = (
    "this client was opened on another event loop, where its connections are: open one client in each loop, "
    "such as in each asyncio.run"
)
_log = client_logger()

Body = TypeVar("Body", bound=msgspec.Struct)


class Session(Asking):
    """The connections of a client to brokers. A session is opened, used and closed on one event loop."""

    def __init__(
        self,
        urls: Sequence[str],
        *,
        environment: Environment,
        request_timeout_s: float,
        retry_timeout_s: float,
        tls: Tls | None = None,
    ) -> None:
        self._urls = deque(urls)  # the next address to use comes first
        self._given_urls = tuple(urls)
        self.scheme = "https" if self._given_urls[0].startswith("https:") else "http"
        self.clock = environment.clock
        self._tls = ClientContext(tls or Tls.from_env(), self.clock.monotonic)
        self.rng = environment.rng
        self._connector = environment.connector
        self.request_timeout_s = request_timeout_s
        self.retry_timeout_s = retry_timeout_s
        self.metadata_version = -1  # the newest version reported by any broker
        self.was_reached = False  # a broker has responded at least once
        self._unreached: dict[str, Exception] = {}  # by address; cleared by each response
        self._detours = Detours(self.clock)
        self._unusable: set[str] = set()  # advertised URLs that this client must not use
        self._loop: asyncio.AbstractEventLoop | None = None
        self._before_close: dict[Callable[[], Awaitable[None]], None] = {}
        self._http: aiohttp.ClientSession | None = None

    @property
    def given_urls(self) -> tuple[str, ...]:
        """The addresses that this client was given."""
        return self._given_urls

    def url_of(self, advertised: str | None) -> str | None:
        """The URL that a broker advertises; None if a client with TLS would have to send without TLS."""
        return usable_url(self._given_urls[0], advertised)

    @property
    def is_open(self) -> bool:
        """True if requests can be made."""
        return self._http is not None

    @property
    def preferred(self) -> str:
        """The address of the broker that is asked next."""
        return self._urls[0]

    async def open(self) -> None:
        """Create the pool of connections; each connection is made when it is needed."""
        self._loop = asyncio.get_running_loop()
        self._http = aiohttp.ClientSession(
            connector=self._connector(),
            middlewares=(single_attempt,),
            auto_decompress=False,
            headers={"User-Agent": "raftlog-python"},
            skip_auto_headers=("Accept-Encoding",),
        )

    def check_loop(self) -> None:
        """Raise ``RuntimeError`` unless called on the event loop on which the session was opened."""
        if self._loop is not None and asyncio.get_running_loop() is not self._loop:
            raise RuntimeError(OTHER_LOOP)

    @contextlib.contextmanager
    def before_close(self, act: Callable[[], Awaitable[None]]) -> Iterator[None]:
        """Let ``close`` of the session call ``act`` first, if it is called during the ``with`` block."""
        self._before_close[act] = None
        try:
            yield
        finally:
            del self._before_close[act]

    async def close(self) -> None:
        """Close all connections. A connection whose broker does not read the sent data is dropped."""
        await asyncio.gather(*(act() for act in [*self._before_close]))
        http, self._http = self._http, None
        if http is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                    await http.close()

    def learn_brokers(self, urls: Sequence[str]) -> None:
        """From now on ask these brokers, and the given addresses only if all these brokers fail.

        A given address may be another name of a broker that failed under its advertised address. Addresses
        that cannot be reached come last.
        """
        kept = [url for url in self._urls if url in urls]
        new = [url for url in urls if url not in kept]
        ordered = [*kept, *new, *(url for url in self._given_urls if url not in urls)]
        self._urls = deque(sorted(ordered, key=self._detours.__contains__))

    def through(self, leader: str) -> str | None:
        """The broker that forwards requests to a silent leader, or to a leader whose URL cannot be used.

        None if the leader must be asked directly.
        """
        if self.url_of(leader) is None:
            if leader not in self._unusable:
                self._unusable.add(leader)
                _log.warning(
                    "a broker advertises %s; its partitions are read and written through %s, which is "
                    "slower. Set https.advertised_url of that broker",
                    leader or "no URL with the scheme of this client",
                    self.preferred,
                )
            return self.preferred
        other = next((url for url in self._urls if url != leader and url not in self._detours), None)
        if other is None or not self._detours.is_needed(leader):
            return None
        if (why := self._detours.first_reason(leader)) is not None:
            _log.warning(
                "%s. A broker advertises this address; its partitions are read and written through %s, which "
                "is slower. Set http.advertised_url of that broker to an address that clients reach",
                *(why, other),
            )
        return other

    async def ask(
        self,
        method: str,
        url: str,
        *,
        body: bytes | None = None,
        content_type: str = media_types.JSON,
        accept: str = media_types.JSON,
        transaction: str | None = None,
        timeout_s: float | None = None,
        answer_bytes_max: int = ANSWER_BYTES_MAX,
    ) -> Reply:
        """Send one request to one broker. Raises ``NotSent``, ``ConnectionLost``, or the broker's error.

        A response above ``answer_bytes_max`` closes the connection: no broker sends such a response.
        """
        http = self._http_for(url)
        sent_headers = {"Accept": accept}
        if transaction is not None:
            sent_headers[headers.TRANSACTION] = transaction
        tracing.inject(sent_headers)
        data: bytes | io.BytesIO | None = body
        if body is not None:
            sent_headers["Content-Type"] = content_type
            if len(body) > _PLAIN_BODY_MAX:
                data = io.BytesIO(body)
        limit_s = self.request_timeout_s if timeout_s is None else timeout_s
        timeout = aiohttp.ClientTimeout(total=limit_s, connect=min(CONNECT_TIMEOUT_S, limit_s))
        base, began_s = url.split("/v1/")[0], self.clock.monotonic()
        request = http.request(
            method,
            URL(url, encoded=True),
            data=data,
            headers=sent_headers,
            timeout=timeout,
            allow_redirects=False,
            ssl=self._tls.current() if url.startswith("https:") else True,
        )
        try:
            async with request as response:
                answer = await _read_body(response, answer_bytes_max)
                reply = Reply(response.status, answer, response.headers)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            if was_never_sent(error):
                why = self._not_reached(base, error)
                self._detours.failed(base, began_s, why)
                raise NotSent(why) from error
            self._unreached.pop(base, None)
            why = self._unanswered(base, error, limit_s)
            silent_since_s = began_s if isinstance(error, TimeoutError) else self.clock.monotonic()
            self._detours.failed(base, silent_since_s, f"{base} does not answer: {why}")
            raise ConnectionLost(f"{method} {url.split('?')[0]}: {why}") from error
        problem = error_of(reply, method, url) if reply.status >= 300 else None
        self._note(base, began_s, reply, problem)
        if problem is not None:
            raise problem
        return reply

    def _http_for(self, url: str) -> aiohttp.ClientSession:
        """Return the open connections, which may be used for a request to ``url``. Raises ``NotSent``."""
        if self._http is None:
            raise NotSent("the client is not open: use it as an async with block, or call open")
        self.check_loop()
        if self.url_of(url) is None:
            raise NotSent(f"{url} has no TLS, and a client with an https:// URL sends no request without TLS")
        return self._http

    def _unanswered(self, base: str, error: Exception, limit_s: float) -> str:
        """Why a request that was sent has no response."""
        why = str(error) or f"no response within {limit_s:g} s"
        return why if self.was_reached or isinstance(error, TimeoutError) else without_http(base, why)

    def _not_reached(self, base: str, error: Exception) -> str:
        """Why a broker cannot be reached. A timeout does not replace an earlier reason, which says more."""
        if not isinstance(error, TimeoutError) or base not in self._unreached:
            self._unreached[base] = error
        return _unreached(base, self._unreached[base])

    def _note(self, base: str, began_s: float, reply: Reply, problem: RaftlogError | None) -> None:
        """Update the state of the session after a response of a broker."""
        self.was_reached = True
        self._unreached.clear()
        self.metadata_version = max(self.metadata_version, reply.number(headers.METADATA_VERSION))
        if isinstance(problem, ConnectionLost):
            self._detours.failed(base, began_s, f"{base} is no broker: {problem}")
        else:
            self._detours.answered(base)

    async def ask_any(
        self,
        method: str,
        path: str,
        *,
        body: msgspec.Struct | None = None,
        may_repeat: bool = True,
        retry_timeout_s: float | None = None,
        attempt_timeout_s: float | None = None,
        refusal_settles: bool = False,
    ) -> Reply:
        """The response of any broker, with retries.

        Without ``may_repeat`` an error with an unknown outcome is raised at once. A client that has never had
        a response does not retry for long if every address refuses.

        At the deadline a broker's last refusal is raised, if any, because it is more specific, unless an
        attempt may have changed something: then its error, or with ``refusal_settles`` still the refusal.
        """
        encoded = None if body is None else _encoded(body)
        limit_s = self.retry_timeout_s if retry_timeout_s is None else retry_timeout_s
        attempt_s = self.request_timeout_s if attempt_timeout_s is None else attempt_timeout_s
        deadline = (began := self.clock.monotonic()) + limit_s
        if method != "GET" and not self.was_reached and len(self._urls) > 1:
            await self._reach_one(limit_s)
        attempts = 0
        refusal: RaftlogError | None = None
        doubt: RaftlogError | None = None
        while True:
            base = self._urls[0]
            left_s = deadline - self.clock.monotonic()
            try:
                reply = await self.ask(
                    method,
                    base + path,
                    body=encoded,
                    timeout_s=min(self._patience_s(method, attempts, attempt_s), max(left_s, 0.01)),
                )
                return reply if doubt is None else replace(reply, doubt=doubt)
            except RaftlogError as error:
                attempts += 1
                self.turn_away(base, error)
                if not error.is_definite and method != "GET":
                    doubt = error
                if not error.retryable or not (error.is_definite or may_repeat) or not self.is_open:
                    if doubt in (None, error) or refusal_settles:
                        raise
                    raise self._told(error, doubt, None) from error
                is_silence = isinstance(error, NotSent | ConnectionLost)
                is_other_next = is_silence and attempts < len(self._urls)
                pause = 0.0 if is_other_next else pause_s(error, attempts, self.rng)
                if self._is_refused_everywhere():
                    deadline = min(deadline, began + _REFUSED_S)
                refusal = refusal if is_silence else error
                last = self._told(error, doubt, refusal if may_repeat else None)
            if self.clock.monotonic() + pause < deadline:
                await asyncio.sleep(pause)
                if self.clock.monotonic() < deadline - limit_s * _TOO_SHORT:
                    continue  # else another attempt would hide the reason
            raise last

    def _told(
        self, error: RaftlogError, doubt: RaftlogError | None, refusal: RaftlogError | None
    ) -> RaftlogError:
        """The error to raise after the last attempt: ``doubt``, else ``refusal``, else ``error``."""
        if doubt is not None:
            return in_doubt(doubt, error)
        last = refusal or error
        if isinstance(last, NotSent):
            last = self.no_answer()
        if last is not error:
            last.__cause__ = error
        return last

    async def _reach_one(self, limit_s: float) -> None:
        """Find a broker that answers. Called before the first request that may change something."""
        try:
            await self.call(cluster.DESCRIBE, retry_timeout_s=limit_s)
        except NotSent:
            raise
        except RaftlogError as error:
            if not self.was_reached:
                raise NotSent(f"no broker answered: {error}") from error

    def _patience_s(self, method: str, attempts: int, attempt_s: float) -> float:
        """The seconds that one attempt may take. A frozen broker must leave time to ask the other brokers."""
        is_first_round = method == "GET" and attempts < len(self._urls) and len(self._urls) > 1
        return min(attempt_s, SILENCE_S) if is_first_round else attempt_s

    def no_answer(self, what: str = "no broker answered") -> NotSent:
        """The error for a request without any connection, with the reason for each address."""
        return NotSent("; ".join([what, *(_unreached(*one) for one in self._unreached.items())]))

    def gives_up(self, error: RaftlogError) -> bool:
        """Whether to stop retrying: a retry cannot help, or all addresses refused from the beginning."""
        return not error.retryable or not self.is_open or self._is_refused_everywhere()

    def _is_refused_everywhere(self) -> bool:
        return not self.was_reached and all(
            isinstance(self._unreached.get(url), aiohttp.ClientConnectorError | UnicodeError)
            for url in self._urls
        )

    def turn_away(self, base: str, error: RaftlogError) -> None:
        """Ask this broker last from now on, if the error may be due to the broker itself.

        A broker that knows no leader may be cut off from the others.
        """
        if isinstance(error, NotSent | ConnectionLost | Draining | NoLeader) and base in self._urls:
            self._urls.remove(base)
            self._urls.append(base)


def _unreached(base: str, error: Exception) -> str:
    why = str(error) or "no connection in time"
    if isinstance(error, UnicodeError):
        why = f"the host name is invalid: {error}"
    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno
        why = os.strerror(number) if number and number > 0 else str(error.os_error)
        why = tls_failure(error.os_error) or why
    return f"{base} cannot be reached: {why}"


def in_doubt(doubt: RaftlogError, later: RaftlogError) -> RaftlogError:
    """The error of an attempt that may have changed something, with the text of the last attempt's error."""
    if later is doubt:
        return doubt
    told = type(doubt)(f"{doubt}; then: {later}", **doubt.details)
    told.__cause__ = later
    return told


def _encoded(body: msgspec.Struct) -> bytes:
    try:
        return encode_json(body)
    except ValueError as error:
        raise InvalidRequest(str(error)) from error


async def _read_body(response: aiohttp.ClientResponse, bytes_max: int) -> bytes:
    """The body as the broker sent it, never decompressed.

    Raises ``ClientPayloadError`` above ``bytes_max``.
    """
    parts: list[bytes] = []
    left = bytes_max - (response.content_length or 0)
    if left >= 0:
        left = bytes_max
        async for part in response.content.iter_any():
            left -= len(part)
            if left < 0:
                break
            parts.append(part)
    if left < 0:
        response.close()
        raise aiohttp.ClientPayloadError(
            f"the response has more than {bytes_max} bytes; the connection was closed"
        )
    return b"".join(parts)
