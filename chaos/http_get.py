"""Sends GET requests without raftlog's client, so that an error there cannot hide an error in the brokers.

Each request has one attempt, and there is one kind of error: a broker that is killed during its response
counts as unreachable.
"""

from __future__ import annotations

import http.client
import urllib.request
from email.message import Message


def http_get(url: str, timeout_s: float, **sent: str) -> tuple[bytes, Message]:
    """Return body and headers of a successful response. Raises ``OSError``, also for a truncated response."""
    request = urllib.request.Request(url, headers=sent)
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:
            if (
                answer.length is None and not answer.chunked
            ):  # all responses of brokers have a length or are chunked
                raise ConnectionError(f"{url}: the response ends within its headers")
            return answer.read(), answer.headers
    except http.client.HTTPException as error:
        raise ConnectionError(f"{url}: {error!r}") from error
