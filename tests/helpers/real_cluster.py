"""Vocabulary for tests of real brokers: blocking HTTP calls, topics, waiting for conditions."""

from __future__ import annotations

import http.client
import json
import random
import socket
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar
from urllib.parse import urlsplit

from chaos.cluster import Cluster
from raftlog.errors import PartitionNotFound, TopicNotFound
from raftlog.testing.waits import LIMIT_S, expired
from raftlog.testing.waits import eventually as eventually

Json = dict[str, object]
Found = TypeVar("Found")

RETRYABLE = (429, 502, 503, 504, 507)
NOT_KNOWN_YET = (TopicNotFound.code, PartitionNotFound.code)  # by a broker that is behind with its metadata


@dataclass(slots=True)
class Answer:
    """One response; header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Json:
        """The body as an object; empty if it is none."""
        try:
            value = json.loads(self.body)
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}

    @property
    def code(self) -> object:
        """The code of a problem, None for other responses."""
        is_problem = self.headers.get("content-type", "").startswith("application/problem+json")
        return self.json.get("code") if is_problem else None

    def number(self, name: str) -> int:
        """A number in the body."""
        value = self.json[name]
        assert isinstance(value, int), (name, value)
        return value

    def rows(self, name: str = "records") -> list[dict[str, object]]:
        """A list of objects in the body; empty if it is missing."""
        value = self.json.get(name, [])
        assert isinstance(value, list)
        return value


def call(
    url: str,
    method: str,
    path: str,
    body: object = None,
    headers: Mapping[str, str] | None = None,
    *,
    timeout_s: float = LIMIT_S,
) -> Answer:
    """One request on its own connection; anything but bytes goes as JSON. Raises ``OSError``."""
    sent = dict(headers or {})
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
        sent.setdefault("Content-Type", "application/json")
    where = urlsplit(url)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=timeout_s)
    try:
        connection.request(method, path, body=body, headers=sent)
        answer = connection.getresponse()
        named = {name.lower(): value for name, value in answer.getheaders()}
        return Answer(answer.status, named, answer.read())
    except http.client.HTTPException as error:
        raise ConnectionError(f"{type(error).__name__}: {error}") from error
    finally:
        connection.close()


def may_be_repeated(answer: Answer) -> bool:
    """Whether it is a refusal that another attempt, perhaps at another broker, need not get."""
    return answer.status in RETRYABLE or answer.code in NOT_KNOWN_YET


def settled(
    url: str, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
) -> Answer:
    """The first answer of this broker that is no refusal for a time. The request may be carried out twice."""

    def attempt() -> Answer | None:
        answer = call(url, method, path, body, headers)
        return None if answer.status in RETRYABLE else answer

    return eventually(attempt, what=f"an answer to {method} {path} at {url}")


def delete_topic(url: str, name: str) -> None:
    """Delete a topic. A repeated request finds none where the answer to the first is not known."""
    gone = settled(url, "DELETE", f"/v1/topics/{name}")
    assert gone.status in (200, 404), gone


def create_topic(
    url: str,
    name: str,
    partitions: int = 1,
    *,
    replication_factor: int = 3,
    known_to: Sequence[str] = (),
    **config: int | str,
) -> Answer:
    """Create a topic, and wait until this broker and those of ``known_to`` know a leader of every partition.

    The answer is that to the creation, or what the topic is if the first answer was lost. ``segment_bytes``
    is segment.bytes.
    """
    named = {key.replace("_", "."): value for key, value in config.items()}
    body = {"name": name, "partitions": partitions, "replication_factor": replication_factor, "config": named}
    may_exist = False

    def attempt() -> Answer | None:
        nonlocal may_exist
        answer = call(url, "POST", "/v1/topics", body)
        if may_exist and answer.status == 409:
            answer = call(url, "GET", f"/v1/topics/{name}")
        may_exist = may_exist or answer.status == 504
        return None if may_be_repeated(answer) else answer

    made = eventually(attempt, what=f"the creation of {name}")
    assert made.status == 201 or (may_exist and made.status == 200), made
    for each in (url, *known_to):
        eventually(partial(has_leaders, each, name, partitions), what=f"leaders of {name} at {each}")
    return made


def partitions_of(url: str, name: str) -> list[dict[str, object]]:
    """The state of the partitions of a topic. Raises ``OSError`` while the broker refuses to tell."""
    answer = call(url, "GET", f"/v1/topics/{name}/partitions?limit=1000")
    if answer.status in RETRYABLE:
        raise ConnectionError(f"{answer.status} {answer.code}")
    return answer.rows("items")


def has_leaders(url: str, name: str, partitions: int) -> bool:
    """Whether every partition has a leader."""
    items = partitions_of(url, name)
    return len(items) == partitions and all(item["leader"] for item in items)


def records_path(topic: str, partition: int = 0) -> str:
    """The path to produce to and fetch from one partition."""
    return f"/v1/topics/{topic}/partitions/{partition}/records"


def produce(url: str, topic: str, values: Sequence[str], *, partition: int = 0, query: str = "") -> Answer:
    """One attempt to store values in one partition."""
    body = {"records": [{"value": value} for value in values]}
    return call(url, "POST", records_path(topic, partition) + query, body)


def produce_surely(urls: Sequence[str], topic: str, values: Sequence[str], *, partition: int = 0) -> int:
    """Produce as one idempotent producer that retries at all brokers; returns the offset of the first
    value.
    """
    identity: dict[str, str] = {}
    turn = 0

    def attempt() -> Answer | None:
        nonlocal turn
        turn += 1
        url = urls[turn % len(urls)]
        if not identity:
            producer = call(url, "POST", "/v1/producers")
            if producer.status >= 300:
                return None
            identity["Raftlog-Producer-Id"] = str(producer.number("producer_id"))
            identity["Raftlog-Producer-Epoch"] = identity["Raftlog-Producer-Sequence"] = "0"
        body = {"records": [{"value": value} for value in values]}
        answer = call(url, "POST", records_path(topic, partition) + "?timeout=3s", body, identity)
        assert answer.status == 200 or may_be_repeated(answer), answer
        return answer if answer.status == 200 else None

    stored = eventually(attempt, what=f"produce to {topic}/{partition}")
    offset = stored.rows()[0]["offset"]
    assert isinstance(offset, int)
    return offset


def read_all(
    url: str, topic: str, partition: int = 0, *, start: int = 0, end: int | None = None
) -> list[tuple[int, object]]:
    """Every record as (offset, value), at least up to ``end``: by default what is committed now.

    A leader that was deposed, or is too new to know what is committed, shows an old end to a read; the
    default is what a leader has proved, which takes a majority of the replicas.
    """
    found: list[tuple[int, object]] = []
    offset = start
    if end is None:
        end = settled(url, "GET", f"/v1/topics/{topic}/partitions/{partition}/offsets").number("offset")
    while True:
        path = f"{records_path(topic, partition)}?offset={offset}"
        answer = eventually(partial(_further, url, path, offset, end), what=f"a fetch of {path}")
        assert answer.status in (200, 204), answer
        found += [(int(str(row["offset"])), row["value"]) for row in answer.rows()]
        offset = int(answer.headers["raftlog-next-offset"])
        if offset >= end:
            return found


def _further(url: str, path: str, offset: int, end: int) -> Answer | None:
    """The answer to a fetch that comes closer to the end; None if it is to be repeated."""
    answer = call(url, "GET", path)
    if answer.status not in (200, 204):
        return None if may_be_repeated(answer) else answer
    return answer if int(answer.headers["raftlog-next-offset"]) > offset or offset >= end else None


def values_of(cluster: Cluster, topic: str, partition: int = 0) -> list[object]:
    """The values of a partition, read through a running broker."""
    url = cluster.url(cluster.running[0])
    return [value for _, value in read_all(url, topic, partition)]


def connect(url: str) -> socket.socket:
    """A bare connection."""
    where = urlsplit(url)
    return socket.create_connection((where.hostname, where.port), timeout=LIMIT_S)


def next_line(process: subprocess.Popen[str]) -> str:
    """The next line that a process prints, without its end; an empty one at the end of the output.

    Waits as long as ``eventually`` does.
    """
    assert process.stdout is not None
    output, found = process.stdout, list[str]()
    reading = threading.Thread(target=lambda: found.append(output.readline()), daemon=True)
    reading.start()
    reading.join(LIMIT_S)
    if not found:
        raise AssertionError(expired(f"a line of process {process.pid}", process.poll()))
    return found[0].strip()


def surely(urls: list[str], method: str, path: str, body: object, rng: random.Random) -> Answer:
    """The answer of some broker, after as many attempts as it takes."""

    def answered() -> Answer | None:
        answer = call(rng.choice(urls), method, path, body)
        return None if answer.json.get("retryable") or answer.code in NOT_KNOWN_YET else answer

    return eventually(answered, what=f"an answer to {method} {path}")
