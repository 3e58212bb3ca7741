"""Keyed requests of one partition of ``__transactions``, stored in encoded form.

A day may have a million keyed requests, most of which are never read again. So a request is decoded only when
it is read, and snapshots and the decisions of the leader share its bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from raftlog.hosting.snapshot_rows import SnapshotRows
from transactions.records import KINDS, KeyedRequest, RequestKey

KEY_BYTES: Final = 340  # approximate memory of a key on each replica, without its answer
_ROW: Final = msgspec.msgpack.Decoder(tuple[bytes, bytes])


class KeptRequests:
    """Keyed requests by digest; ``rows`` has the encoded records."""

    def __init__(self, rows: SnapshotRows | None = None) -> None:
        self.rows = SnapshotRows() if rows is None else rows

    def __len__(self) -> int:
        return len(self.rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeptRequests) and dict(self.items()) == dict(other.items())

    def items(self) -> Iterator[tuple[bytes, KeyedRequest]]:
        """Digests and requests, in any order."""
        return map(_decoded, self.rows)

    def __contains__(self, digest: bytes) -> bool:
        return self.rows.get(_key_of(digest)) is not None

    def get(self, digest: bytes) -> KeyedRequest | None:
        """The request with this digest, or None."""
        row = self.rows.get(_key_of(digest))
        return None if row is None else _decoded(row)[1]

    def oldest(self, client: str = "") -> Iterator[tuple[bytes, KeyedRequest]]:
        """Digests and requests, oldest first: of one client, or of all clients if ``client`` is empty."""
        wanted = msgspec.msgpack.encode(client)
        for row in self.rows:
            if not client or wanted in row:
                digest, request = _decoded(row)
                if client in ("", request.client):
                    yield digest, request

    def arrange(self) -> None:
        """Sort the requests by the time of their changes, because a snapshot has them in another order."""
        self.rows.arrange(lambda row: _decoded(row)[1].changed_ms)

    def copy(self) -> KeptRequests:
        """Copy the requests, for independent changes."""
        return KeptRequests(self.rows.copy())


def size_of(request: KeyedRequest) -> int:
    """Approximate memory in bytes that a request takes on each replica."""
    return KEY_BYTES + len(request.client) + len(request.answer or b"")


def _key_of(digest: bytes) -> bytes:
    return KINDS.record_of(RequestKey(digest), None).key or b""


def _decoded(row: bytes) -> tuple[bytes, KeyedRequest]:
    known = KINDS.decoded(*_ROW.decode(row))
    assert known is not None
    key, request = known
    assert isinstance(key, RequestKey)
    assert isinstance(request, KeyedRequest)
    return key.digest, request
