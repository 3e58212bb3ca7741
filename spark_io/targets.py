"""Whether the topic of a sink exists, asked on the driver: else every attempt of every task fails.

Decides: what counts as missing, which is only what a broker says. Leaves to others: brokers that do not
answer; the tasks try for longer. Each batch of a stream asks in a new process, to which a client would add
half a second: this is one request over plain HTTP.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from http.client import HTTPException
from typing import Final
from urllib.error import HTTPError
from urllib.request import ProxyHandler, build_opener

from raftlog.client.topic_names import nearest
from raftlog.wire import paths
from spark_io.errors import InvalidOption

ASK_S: Final = 2.0  # for the answer of a broker, before the next one is asked
NAMES_MAX: Final = 1_000  # among which a similar name is looked for


def check_topic(servers: Sequence[str], topic: str) -> None:
    """Raise ``InvalidOption`` if a broker says that the topic does not exist."""
    for server in servers:
        try:
            _get(f"{server}{paths.topic(topic)}")
        except HTTPError as error:
            if _code_of(error) == "topic_not_found":
                raise no_topic(topic, _names(server)) from None
        except (OSError, HTTPException):
            continue  # the next broker may answer
        return


def no_topic(topic: str, names: Iterable[str]) -> InvalidOption:
    """The error for a topic that does not exist among ``names``."""
    likely = nearest(topic, names)
    hint = "" if likely is None else f" (did you mean {likely!r}?)"
    return InvalidOption(f"topic {topic!r} does not exist{hint}; create it, or correct its name")


def _names(server: str) -> list[str]:
    try:
        found = json.loads(_get(f"{server}{paths.TOPICS}?limit={NAMES_MAX}"))
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
