"""Checks on the driver whether the topic of a sink exists: otherwise each attempt of each task would fail.

Decides: a topic counts as missing only if a broker says so. Leaves to others: how long brokers may be silent
(``data_source``). A stream survives a restart of all brokers, since its tasks wait longer.

Each batch of a stream checks in a new process, where a client would cost half a second: so this module sends
one plain HTTP request.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from http.client import HTTPException
from typing import TYPE_CHECKING, Final
from urllib.error import HTTPError
from urllib.request import ProxyHandler, build_opener

from raftlog.client.topic_names import suggestion
from raftlog.errors import NotSent, TopicNotFound
from raftlog.wire import topics
from spark_io.errors import InvalidOption

if TYPE_CHECKING:
    from raftlog.client import Client

ASK_S: Final = 2.0  # wait for the answer of a broker, before the next broker is asked
POLL_S: Final = 0.2
NAMES_MAX: Final = 1_000  # names among which a similar one is searched


def check_target(servers: Sequence[str], topic: str | None, patience_s: float | None) -> None:
    """Raise ``InvalidOption`` if a broker says that the topic does not exist.

    Raises ``NotSent`` if no broker answers for ``patience_s`` seconds, even if ``topic`` is None. If
    ``patience_s`` is None, silent brokers are no error.
    """
    path = f"{topics.LIST.path}?limit=1" if topic is None else topics.DESCRIBE.at(topic=topic)
    deadline = time.monotonic() + (patience_s or 0.0)
    while (silent := _silent(servers, path, topic)) and patience_s is not None:
        if time.monotonic() > deadline:
            raise NotSent(
                f"no broker answers ({'; '.join(silent)}); correct bootstrap.servers, or start a broker"
            )
        time.sleep(POLL_S)


def no_topic(topic: str, names: Iterable[str]) -> InvalidOption:
    """The error for a topic that is not among ``names``, the existing topics."""
    return InvalidOption(
        f"topic {topic!r} does not exist{suggestion(topic, names)}; create it, or correct its name"
    )


def no_such_topic(client: Client, error: TopicNotFound) -> InvalidOption:
    """The error for the topic that a broker does not know."""
    return no_topic(str(error.details.get("topic")), [one.name for one in client.topics.list()])


def _silent(servers: Sequence[str], path: str, topic: str | None) -> list[str]:
    """The reason why each broker has not answered; an empty list if a broker has answered."""
    silent = []
    for server in servers:
        try:
            _get(f"{server}{path}")
        except HTTPError as error:
            if topic is not None and _code_of(error) == "topic_not_found":
                raise no_topic(topic, _names(server)) from None
        except (OSError, HTTPException) as error:
            silent.append(f"{server}: {getattr(error, 'reason', error)}")
            continue
        return []
    return silent


def _names(server: str) -> list[str]:
    try:
        found = json.loads(_get(f"{server}{topics.LIST.path}?limit={NAMES_MAX}"))
        return [one["name"] for one in found["items"]]
    except (OSError, HTTPException, ValueError):
        return []


def _code_of(error: HTTPError) -> object:
    try:
        return json.loads(error.read()).get("code")
    except (OSError, HTTPException, ValueError):
        return None


def _get(url: str) -> bytes:
    body: bytes
    with build_opener(ProxyHandler({})).open(url, timeout=ASK_S) as reply:
        body = reply.read()
    return body
