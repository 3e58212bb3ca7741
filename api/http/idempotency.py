"""Reads the header ``Idempotency-Key``. A request with this header is carried out once, however often it is
sent.

Decides: which keys are valid, the scope of a key, and which requests are equal. Leaves to others: which
requests were carried out before (``transactions.keyed_requests``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import blake2b
from random import Random
from typing import Final

from api.http.parameters import media_type_of
from api.http.requests import Request, client_of
from raftlog.errors import InvalidRequest
from raftlog.wire import headers
from raftlog.wire.limits import KEY_CHARACTERS_MAX
from transactions.requests import Claim

KEY_PATTERN: Final = rf"^[!-~]{{1,{KEY_CHARACTERS_MAX}}}$"
DIGEST_BYTES: Final = 16
_KEY: Final = re.compile(KEY_PATTERN)
_OTHERS: Final = (
    headers.TRANSACTION,
    headers.PRODUCER_ID,
    headers.PRODUCER_EPOCH,
    headers.PRODUCER_SEQUENCE,
)
_OF_RAW_BODY: Final = (headers.KEY.lower(), headers.TAGS.lower(), headers.HEADER_PREFIX.lower())


def key_of(request: Request) -> str | None:
    """Return the idempotency key of a request; None if it has none. Raises ``InvalidRequest`` for an invalid
    key.
    """
    if headers.IDEMPOTENCY_KEY not in request.headers:
        return None
    for name in _OTHERS:
        if name in request.headers:
            raise _refused(
                f"cannot be combined with {name}, another way to store once; send only one of the two headers"
            )
    (key, *more) = request.headers.getall(headers.IDEMPOTENCY_KEY)
    if more or not _KEY.fullmatch(key):
        raise _refused(f"is {key[:64]!r}; send a key of 1 to {KEY_CHARACTERS_MAX} visible ASCII characters")
    return key


def refuse_key(request: Request, why: str) -> None:
    """Raise ``InvalidRequest`` if a request that cannot have an idempotency key has one."""
    if headers.IDEMPOTENCY_KEY in request.headers:
        raise _refused(why)


def claim_of(request: Request, key: str, scope: str, body: bytes | bytearray, rng: Random) -> Claim:
    """Create the claim of a request with an idempotency key, which is unique in its ``scope``.

    Requests are equal if path, media type, headers of a raw body, and body are equal. The query is not
    compared: it only has timeouts and the choice of the route.
    """
    named = ((name.lower(), value) for name, value in request.headers.items())
    of_body = sorted(f"{name}: {value}" for name, value in named if name.startswith(_OF_RAW_BODY))
    content = _hash((request.method, request.path, media_type_of(request), *of_body))
    content.update(body)
    return Claim(
        digest=_hash((scope, key)).digest(),
        fingerprint=content.digest(),
        attempt=rng.getrandbits(62),
        client=client_of(request),
    )


def _hash(texts: Iterable[str]) -> blake2b:
    hashed = blake2b(digest_size=DIGEST_BYTES)
    for text in texts:
        encoded = text.encode(errors="surrogateescape")
        hashed.update(len(encoded).to_bytes(4, "big") + encoded)
    return hashed


def _refused(why: str) -> InvalidRequest:
    return InvalidRequest(f"{headers.IDEMPOTENCY_KEY} {why}", field=headers.IDEMPOTENCY_KEY)
