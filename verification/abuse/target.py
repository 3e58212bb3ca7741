"""Tools for attacks: the addresses of a cluster, a topic, and functions that send any bytes."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from api.http.errors import TABLE
from raftlog.wire import media_types, records

NOT_ANSWERED: Final = "not answered"
BATCH: Final = {"Content-Type": media_types.BATCH}
TIMEOUT_S: Final = 60.0
AT_ONCE: Final = 8  # requests of most attacks
STRANGER: Final = "127.0.0.2"  # an address that the bystander does not use; all of 127/8 is loopback on Linux
_DOCUMENTED: Final = {f"{kind.status} {error.code}" for error, kind in TABLE.items() if kind.status != 500}
ANSWER_S: Final = 1.0  # longest wait for a response to noise, and for the end of the connection


@dataclass(frozen=True, slots=True)
class Attack:
    """One attack. ``run`` returns counts of responses; no response may be a 500, or an error without a
    problem document.

    ``bound_mib`` is the memory growth that the documented limits allow, in MiB: decompressed bodies, a
    decompressed batch, and unread responses. During an ``is_strict`` attack the brokers may refuse almost
    none of the bystander's requests.
    """

    name: str
    run: Callable[[Target], Counter[str]]
    bound_mib: int = 0
    is_strict: bool = False


@dataclass(frozen=True, slots=True)
class Target:
    """A cluster under attack. ``scale`` multiplies repetitions: it is 1.0, or less for short runs."""

    urls: Sequence[str]
    node_ports: Sequence[tuple[str, int]]
    topic: str
    scale: float
    source: str = ""  # address that connections come from

    def times(self, number: int) -> int:
        """Return a number of repetitions, multiplied by the scale of the run."""
        return max(1, round(number * self.scale))

    @property
    def records(self) -> str:
        """The path of the records of the topic's first partition."""
        return records.FETCH.at(topic=self.topic, partition=0)

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        broker: int = 0,
        answer_s: float = TIMEOUT_S,
        source: str = "",
    ) -> tuple[str, bytes]:
        """Send one request on a new connection; return the described response and the response's body."""
        where = urlsplit(self.urls[broker % len(self.urls)])
        connection = _AnyBytes(where.hostname or "", where.port, answer_s, _bound(source or self.source))
        try:
            connection.request(method, path, body=body, headers=dict(headers or {}))
            answer = connection.getresponse()
            media_type = answer.getheader("Content-Type", "")
            content = (
                b"" if media_type.startswith(media_types.EVENT_STREAM) else answer.read()
            )  # an event stream has no end
            return described(answer.status, media_type, content), content
        except (OSError, http.client.HTTPException) as error:
            return f"{NOT_ANSWERED}: {type(error).__name__}", b""
        finally:
            connection.close()

    def at_once(self, width: int, work: Callable[[int], str], *, count: int = 0) -> Counter[str]:
        """Call ``work`` ``count`` times (by default ``width`` times), ``width`` calls at a time; count the
        results.
        """
        with ThreadPoolExecutor(width) as threads:
            return Counter(threads.map(work, range(count or width)))

    @contextlib.contextmanager
    def connections(
        self, count: int, first: bytes = b"", *, broker: int = 0
    ) -> Iterator[list[socket.socket]]:
        """Keep connections open during the ``with`` block; each has sent the bytes ``first``."""
        where = urlsplit(self.urls[broker])
        with contextlib.ExitStack() as stack:
            opened: list[socket.socket] = []
            for _ in range(count):
                with contextlib.suppress(OSError):
                    link = stack.enter_context(
                        socket.create_connection(
                            (where.hostname or "", where.port or 0), 5, _bound(self.source)
                        )
                    )
                    link.sendall(first)
                    opened.append(link)
            yield opened


class _AnyBytes(http.client.HTTPConnection):
    """Connection that accepts a path that is not ASCII: each character below 256 is sent as one byte."""

    def _encode_request(self, request: str) -> bytes:
        return request.encode("latin-1")


def _bound(source: str) -> tuple[str, int] | None:
    return (source, 0) if source else None


def raw_exchange(address: tuple[str, int], data: bytes) -> str:
    """Send bytes; return the described response, or the reason why there was no response."""
    try:
        with socket.create_connection(address, timeout=5) as link:
            link.sendall(data)
            answer = b""
            with contextlib.suppress(TimeoutError):
                link.settimeout(ANSWER_S)
                while chunk := link.recv(65536):
                    answer += chunk
    except OSError as error:
        return f"{NOT_ANSWERED}: {type(error).__name__}"
    if not answer:
        return "silence"
    head, _, body = answer.partition(b"\r\n\r\n")
    status = head.split(b" ", 2)[1:2]
    media_type = next(
        (line[13:].strip() for line in head.split(b"\r\n") if line.lower().startswith(b"content-type:")), b""
    )
    return described(int(status[0]) if status else 0, media_type.decode("latin-1"), body)


def described(status: int, media_type: str, body: bytes) -> str:
    """Describe a response: ``413 record_too_large``, ``200``, or ``500 that is no problem``."""
    if status < 400:
        return str(status)
    if not media_type.startswith(media_types.PROBLEM):
        return f"{status} without a problem body"
    try:
        problem = json.loads(body)
    except ValueError:
        return f"{status} without a problem body"
    told = f"{status} {problem.get('code')}"
    says_nothing = problem.get("detail", "") in ("", str(problem.get("code")).replace("_", " "))
    return f"{told} with no remedy" if says_nothing else told


def is_wrong(answer: str) -> bool:
    """Return whether a response is wrong for any request: an undocumented 5xx, or an error without a problem
    document.
    """
    is_unexpected = answer.startswith("5") and answer not in _DOCUMENTED
    return is_unexpected or "no problem" in answer or "no remedy" in answer
