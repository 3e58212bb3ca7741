"""Relays a call to an unreachable broker through a third broker.

One link may be broken while both of its brokers reach all other brokers. Raft continues without the link, but
a client may use the broker that cannot reach the leader. Decides: which brokers are asked to relay a call.
Leaves to others: the target of the call, and the use of its answer (``gateway``,
``raftlog.hosting.coordinator_service``, ``metadata.service``).

A call is relayed only if it definitely did not arrive, only once, and by brokers that reach the target.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from msgspec import Struct, msgpack

from partitions.metadata.image import MetadataImage
from raftlog.errors import ConnectionLost
from raftlog.node.rpc import Calls, Handler, decode_body, encode_body
from raftlog.node.rpc_classes import CallClass, Service
from raftlog.storage.filesystem import Buffer
from raftlog.types import NodeId

RELAYS_MAX: Final = 2  # brokers asked to relay a call, which limits the calls to a dead broker


class Relayed(Struct, frozen=True, array_like=True):
    """Relay a call to broker ``node``, and answer with the answer of that broker.

    The payload is the call's payload.
    """

    node: NodeId
    head: bytes
    timeout_ms: int


class Relay:
    """Calls of one broker to replicas, to coordinators and to the active controller, relayed if necessary.

    This broker also relays such calls of other brokers.
    """

    def __init__(self, node_id: NodeId, image: Callable[[], MetadataImage], calls: Calls) -> None:
        self._node_id = node_id
        self._image = image
        self._calls = calls

    def serve(self, service: Service, handler: Handler) -> None:
        """Serve calls to ``service``, and relay calls of other brokers to the service on a third broker."""
        self._calls.serve(service, handler)
        self._calls.serve(_relaying(service), partial(self._serve, service))

    async def call(
        self,
        node: NodeId,
        service: Service,
        head: bytes,
        payload: Sequence[Buffer] = (),
        *,
        timeout_ms: int,
    ) -> tuple[bytes, memoryview]:
        """Call a broker, directly or through another broker. Raises as ``Calls.call``."""
        try:
            return await self._calls.call(node, service, head, payload, timeout_ms=timeout_ms)
        except ConnectionLost as lost:
            if lost.details.get("sent") is not False:
                raise
            direct = lost
        question, asked = encode_body(Relayed(node, head, timeout_ms)), 0
        for relay in sorted(self._image().brokers.keys() - {node, self._node_id}):
            try:
                return await self._calls.call(
                    relay, _relaying(service), question, payload, timeout_ms=timeout_ms
                )
            except ConnectionLost as lost:
                if lost.details.get("sent") is not False:
                    raise
                asked += lost.details.get("relay") == relay
            if asked == RELAYS_MAX:
                break
        raise direct

    async def _serve(
        self, service: Service, sender: NodeId, head: bytes, payload: memoryview
    ) -> tuple[bytes, Sequence[Buffer]]:
        ask = decode_body(head, Relayed)
        try:
            answer, data = await self._calls.call(
                ask.node, service, ask.head, (payload,), timeout_ms=ask.timeout_ms
            )
        except ConnectionLost as lost:
            raise ConnectionLost(str(lost), **{**lost.details, "relay": self._node_id}) from lost
        return answer, (data,)


def _relaying(service: Service) -> Service:
    kind_of = None if service.kind_of is None else partial(_kind_of, service.kind_of)
    return Service(f"relayed.{service.name}", service.kind, kind_of)


def _kind_of(kind_of: Callable[[bytes], CallClass], head: bytes) -> CallClass:
    return kind_of(msgpack.decode(head, type=Relayed).head)
