"""Valid HTTP requests and mutations of them.

``mutant`` is a function of its number: equal numbers give equal bytes.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field
from typing import Final

from raftlog.wire import media_types

JSON: Final = ("Content-Type", media_types.JSON)
RECORDS: Final = "/v1/topics/orders/partitions/0/records"
LISTED_ORIGIN: Final = "http://ui.example"
ONE: Final = b'{"records":[{"value":"v"}]}'


@dataclass(slots=True)
class Sent:
    """One request before encoding."""

    method: str
    path: str
    query: str = ""
    headers: list[tuple[str, str]] = field(default_factory=lambda: [("Host", "localhost")])
    body: bytes = b""
    version: str = "HTTP/1.1"
    line_end: str = "\r\n"

    def wire(self) -> bytes:
        """The bytes, with the length of the body unless a header says something of it."""
        named = {name.lower() for name, _ in self.headers}
        headers = [*self.headers]
        if self.body and not named & {"content-length", "transfer-encoding"}:
            headers.append(("Content-Length", str(len(self.body))))
        target = f"{self.path}?{self.query}" if self.query else self.path
        lines = [f"{self.method} {target} {self.version}", *(f"{name}: {text}" for name, text in headers)]
        return (self.line_end.join(lines) + 2 * self.line_end).encode("latin-1") + self.body


_VALID: Final = (
    ("GET", "/v1/topics", "limit=2", b""),
    ("GET", "/v1/topics/orders", "", b""),
    ("GET", "/v1/topics/orders/config", "", b""),
    ("GET", "/v1/topics/orders/partitions", "", b""),
    ("GET", "/v1/topics/orders/partitions/0", "", b""),
    ("GET", RECORDS, "offset=0", b""),
    ("GET", RECORDS, "offset=latest&wait=20ms&limit=3", b""),
    ("GET", "/v1/topics/orders/partitions/0/offsets", "at=earliest", b""),
    ("GET", "/v1/topics/orders/partitions/0/records/0", "", b""),
    ("GET", "/v1/brokers/1", "", b""),
    ("GET", "/v1/cluster", "", b""),
    ("GET", "/healthz/ready", "", b""),
    ("GET", "/version", "", b""),
    ("POST", "/v1/topics", "", b'{"name":"more"}'),
    ("POST", "/v1/topics/orders/records", "acks=quorum", ONE),
    ("POST", RECORDS, "", ONE),
    ("POST", "/v1/producers", "", b""),
    ("POST", "/v1/topics/orders/partitions/0:transfer-leadership", "", b'{"to":2}'),
    ("POST", "/v1/topics/orders/partitions/0:set-replicas", "", b'{"replicas":[1,2,3]}'),
    ("POST", "/v1/topics/orders/partitions/0:unsafe-recover", "", b"{}"),
    ("PATCH", "/v1/topics/orders/config", "", b'{"config":{"retention.ms":1000}}'),
    ("DELETE", "/v1/topics/more", "", b""),
)
_METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "get", "FOO", "CONNECT")
_PIECES: Final = (
    *("/", "//", "/.", "/..", "/./", "/../", "%2F", "%2f", "%2E", "%3A", "%00", "%ff", "%", "%zz"),
    *("%C3%A9", ":", ";a=b", "#", "#f", "?", "??", "*", "+", " ", "~", "\\", "'", '"', "<"),
    *("{topic}", "\xe9", "\x00"),
    *(":transfer-leadership", ":set-replicas", ":unsafe-recover", ":nothing", "0", "-1", "records", "orders"),
)
_SEGMENTS: Final = ("", ".", "..", "v1", "topics", "orders", "nobody", "partitions", "0", "7", "records")
_PAIRS: Final = (
    *("limit=1", "limit=0", "offset=0", "offset=-1", "wait=10ms", "wait=99999999s", "nonsense=1"),
    *("route=none", "acks=1", "timeout=5", "limit=%31", "li%6dit=1", "offset=+0", "limit=1;b=2"),
    *("a", "=", "=b", "&", "a=b=c", "a=\xe9", "format=%zz", "a=" + "b" * 9000),
)
_TEXTS: Final[dict[str, tuple[str, ...]]] = {
    "Accept": (
        *("*/*", "text/*", "text/event-stream", "application/json", "image/png", "", media_types.BATCH),
        *("text/*;q=0.1, application/*;q=0.2", "*/*;q=nan", "application/json;q=0", "TEXT/EVENT-STREAM"),
        "text/*, application/json;q=x",
    ),
    "Content-Type": (
        *("application/json; charset=utf-8", "text/plain", "", media_types.BATCH, "multipart/x"),
        *("application/octet-stream", "application/x-ndjson"),
    ),
    "Content-Length": (
        *("0", "1", "5", "007", "+5", "-1", "0x5", "5, 5", "", " 27 ", "27\t", "26", "28", "1000000"),
        "99999999999999999999",
    ),
    "Connection": ("close", "keep-alive", "Keep-Alive", "upgrade", "close, keep-alive", ""),
    "Transfer-Encoding": ("chunked", "gzip, chunked", "identity", "Chunked", ""),
    "Content-Encoding": ("gzip", "deflate", "br", "identity", ""),
    "Host": ("localhost", "127.0.0.1:7070", "[::1]:7070", "evil.example", "", "a b", "a,b"),
    "Origin": (LISTED_ORIGIN, "http://localhost", "http://evil.example", "null", ""),
    "Access-Control-Request-Method": ("POST",),
    "Expect": ("100-continue", "100-Continue", "200-ok"),
    "If-Match": ('"1"', "x"),
    "X": ("a" * 9000, "\xe9", "a\x00b", "a\r\n b", "a\nb: c", "a\rb"),
    **dict.fromkeys(("Upgrade", "TE", "Trailer", "X Y", "X ", "", "X_Y", "Raftlog-Producer-Id"), ("a", "1")),
    **dict.fromkeys(("Last-Event-ID", "Raftlog-Fence", "Range", "Cookie"), ("a", "1")),
}
_HEADERS: Final = [(name, text) for name, texts in _TEXTS.items() for text in texts]


def mutant(number: int) -> list[bytes]:
    """The bytes of one or two requests in the pieces in which they arrive."""
    rng = random.Random(f"mutant {number}")
    sent = b"".join(_one(rng) for _ in range(1 + (rng.random() < 0.1)))
    cuts = sorted(rng.randrange(len(sent) + 1) for _ in range(rng.choice((0, 0, 0, 1, 2, 5))))
    edges = [0, *cuts, len(sent)]
    return [sent[begin:end] for begin, end in itertools.pairwise(edges) if begin < end]


def _one(rng: random.Random) -> bytes:
    method, path, query, body = rng.choice(_VALID)
    sent = Sent(method, path, query, body=body)
    if body:
        sent.headers.append(JSON)
    for _ in range(rng.choice((0, 1, 1, 1, 2, 2, 3))):
        rng.choice((_method, _path, _path, _query, _header, _header, _header, _body, _line))(rng, sent)
    wire = sent.wire()
    if rng.random() < 0.03:  # any byte
        at = rng.randrange(len(wire))
        wire = wire[:at] + rng.randbytes(1) + wire[at + 1 :]
    return wire


def _method(rng: random.Random, sent: Sent) -> None:
    sent.method = rng.choice(_METHODS)


def _path(rng: random.Random, sent: Sent) -> None:
    at = rng.randrange(len(sent.path) + 1)
    match rng.randrange(6):
        case 0:
            sent.path = sent.path[:at] + rng.choice(_PIECES) + sent.path[at:]
        case 1:
            sent.path += rng.choice(_PIECES)
        case 2 if at < len(sent.path):
            sent.path = f"{sent.path[:at]}%{ord(sent.path[at]):02{rng.choice('xX')}}{sent.path[at + 1 :]}"
        case 3:
            segments = sent.path.split("/")
            segments[rng.randrange(len(segments))] = rng.choice(_SEGMENTS)
            sent.path = "/".join(segments)
        case 4:
            sent.path = (
                rng.choice(("http://localhost", "http://evil.example", "//evil.example", "")) + sent.path
            )
        case _:
            sent.path = sent.path[:at]


def _query(rng: random.Random, sent: Sent) -> None:
    sent.query = "&".join([*([sent.query] if sent.query else []), rng.choice(_PAIRS)])


def _header(rng: random.Random, sent: Sent) -> None:
    name, text = rng.choice(_HEADERS)
    if rng.random() < 0.6:
        sent.headers = [pair for pair in sent.headers if pair[0] != name]
    sent.headers.insert(rng.randrange(len(sent.headers) + 1), (name, text))
    if name == "Transfer-Encoding" and rng.random() < 0.7:
        sent.body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(sent.body), sent.body) if sent.body else b"0\r\n\r\n"
    if name == "X" and rng.random() < 0.1:
        sent.headers += [(f"X-{count}", "a") for count in range(rng.choice((60, 130)))]


def _body(rng: random.Random, sent: Sent) -> None:
    at = rng.randrange(len(sent.body) + 1)
    match rng.randrange(4):
        case 0:
            sent.body = sent.body[:at]
        case 1:
            sent.body = sent.body[:at] + rng.randbytes(3) + sent.body[at:]
        case 2:
            sent.headers.append(
                ("Content-Length", str(len(sent.body)))
            )  # as if the rest were another request
            sent.body += rng.choice((b"x", b"\r\n", b"GET / HTTP/1.1\r\n\r\n"))
        case _:
            sent.body = rng.choice((b"[]", b"null", b"{", b"\xff", b"a" * 300_000))


def _line(rng: random.Random, sent: Sent) -> None:
    match rng.randrange(4):
        case 0:
            sent.version = rng.choice(
                ("HTTP/1.0", "HTTP/1.1", "HTTP/2.0", "HTTP/1.2", "http/1.1", "", "HTTP/1.1 ")
            )
        case 1:
            sent.line_end = rng.choice(("\n", "\r", "\r\n"))
        case 2:
            sent.headers = [pair for pair in sent.headers if pair[0] != "Host"]
        case _:
            sent.path += rng.choice(("a" * 9000, "/" * 300, " "))
