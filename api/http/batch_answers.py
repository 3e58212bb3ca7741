"""Responses whose batches are read while they are sent, so that large responses need little memory.

Decides: on which connections this is possible. Leaves to others: reading (``raftlog.node.reading``) and
sending (``api.connections.batch_sender``).
"""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web

from api.http.routes import Call
from partitions.values import UnreadBatches


class BatchesAnswer(web.Response):
    """A response with the batches of ``first`` and all unread batches of ``rest``."""

    def __init__(self, first: bytes | memoryview, rest: UnreadBatches, headers: Mapping[str, str]) -> None:
        super().__init__(headers=headers)
        self.first = memoryview(first)
        self.rest = rest

    @property
    def size_bytes(self) -> int:
        """The size of the body in bytes. Valid only before a piece of ``rest`` is read."""
        return len(self.first) + self.rest.left_bytes


def can_send_pieces(call: Call) -> bool:
    """True if the fast path writes to the connection, without encryption, and all earlier bytes are sent."""
    transport = call.request.transport
    return (
        call.is_plain
        and transport is not None
        and transport.get_extra_info("socket") is not None
        and transport.get_extra_info("ssl_object") is None
        and transport.get_write_buffer_size() == 0
    )
