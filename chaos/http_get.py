"""GET without the client of this project, so that an error there cannot hide one in the brokers.

One attempt, and one kind of error: a broker that is killed during its response counts as one that is away.
"""

from __future__ import annotations

import http.client
import urllib.request
from email.message import Message


def http_get(url: str, timeout_s: float, **sent: str) -> tuple[bytes, Message]:
    """Body and headers of a successful response. Raises ``OSError``, also if the response breaks off."""
    request = urllib.request.Request(url, headers=sent)
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:
            if answer.length is None and not answer.chunked:  # all responses of brokers have either
                raise ConnectionError(f"{url}: the response breaks off in its headers")
            return answer.read(), answer.headers
    except http.client.HTTPException as error:
        raise ConnectionError(f"{url}: {error!r}") from error
