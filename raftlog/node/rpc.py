"""Requests and answers between brokers, over the authenticated links that also carry Raft's messages.

Decides: how an answer finds its request, how an error is transported, and how many requests of each class may
be open and handled at once. Leaves to others: the work of the services, and the bounds (``rpc_classes``). A
call is not retried here: if the link breaks or the time runs out the caller gets ``ConnectionLost``, and the
caller alone knows whether a repetition is harmless.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeVar

import msgspec

from raftlog.errors import ConnectionLost, InvalidRequest, NotLeader, Overloaded, RaftlogError, from_code
from raftlog.node.codec import FrameKind, MalformedFrame, encode_frame, unpack_head
from raftlog.node.frame_limits import FRAME_LIMITS, FrameLimits
from raftlog.node.network.transport import Transport
from raftlog.node.rpc_classes import CALLS_MAX, RETRY_AFTER_MS, CallClass, Service
from raftlog.storage.filesystem import Buffer
from raftlog.tracebacks import release
from raftlog.types import NodeId
from raftlog.wire.decoding import UNREADABLE

Answering = Awaitable[tuple[bytes, Sequence[Buffer]]]
Handler = Callable[[NodeId, bytes, memoryview], Answering]
"""A function that gets the caller, head and payload of a request, and returns head and payload of the answer.

It may raise a ``RaftlogError``.
"""

Body = TypeVar("Body")

ANSWER_AGAIN_S: Final = 0.05  # the pause before an answer that could not leave is sent again
ANSWER_TRIES_MAX: Final = 100
HELD_BYTES_MAX: Final = 32 << 20  # of records in answers that cannot leave
_log = logging.getLogger("raftlog.node")


class Calls:
    """One broker's open requests, and the services that it offers to its peers.

    ``first_id`` should be drawn at random by each process: the answer to a request of an earlier process of
    this broker must not be taken for the answer to a present request.
    """

    def __init__(
        self, transport: Transport, *, first_id: int, frame_limits: FrameLimits = FRAME_LIMITS
    ) -> None:
        self.frame_limits = frame_limits  # of the transport
        self._transport = transport
        self._services: dict[str, tuple[Service, Handler]] = {}
        self._open: dict[int, tuple[NodeId, asyncio.Future[tuple[bytes, memoryview]]]] = {}
        self._asked: Counter[CallClass] = Counter()
        self._running: dict[asyncio.Task[None], tuple[NodeId, CallClass]] = {}
        self._served: Counter[CallClass] = Counter()
        self._last_id = first_id
        self._held_bytes = 0  # of answers that cannot leave

    def serve(self, service: Service, handler: Handler) -> None:
        """Offer a service to all peers; each service has one handler."""
        self._services[service.name] = service, handler

    async def call(
        self,
        peer: NodeId,
        service: Service,
        head: bytes,
        payload: Sequence[Buffer] = (),
        *,
        timeout_ms: int,
    ) -> tuple[bytes, memoryview]:
        """Send a request to a peer; return head and payload of its answer.

        Raises the error that the handler has raised, by its code. Raises ``ConnectionLost`` if the link is
        down or breaks, or ``timeout_ms`` runs out: ``sent`` in its details says whether the request may have
        arrived. Raises ``InvalidRequest`` if the request is too large for a frame, and ``Overloaded``, with
        nothing done, if too many calls of its class are open on either side.
        """
        kind = _class_of(service, head)
        if self._asked[kind] >= CALLS_MAX[kind]:
            raise _overloaded(kind)
        self._last_id += 1
        call_id = self._last_id
        future: asyncio.Future[tuple[bytes, memoryview]] = asyncio.get_running_loop().create_future()
        self._open[call_id] = (peer, future)
        self._asked[kind] += 1
        try:
            if not self._send(peer, encode_frame(FrameKind.CALL, [call_id, service.name, head], payload)):
                raise ConnectionLost(f"broker {peer} cannot be reached", sent=False)
            async with asyncio.timeout(timeout_ms / 1000):
                return await future
        except TimeoutError:
            raise ConnectionLost(f"broker {peer} did not answer within {timeout_ms} ms", sent=True) from None
        finally:
            del self._open[call_id]
            self._asked[kind] -= 1

    def frame_received(self, sender: NodeId, kind: FrameKind, head: memoryview, payload: memoryview) -> None:
        """Handle a ``CALL``, ``ANSWER`` or ``FAILURE`` frame. Raises ``MalformedFrame``."""
        fields = unpack_head(head)
        if kind is FrameKind.CALL:
            self._question(sender, fields, payload)
            return
        asked, future = self._open.get(
            fields[0] if fields and isinstance(fields[0], int) else -1, (None, None)
        )
        if future is None or asked != sender or future.done():
            return  # the caller no longer waits
        match kind, fields:
            case FrameKind.ANSWER, [_, bytes(answer)]:
                future.set_result((answer, payload))
            case FrameKind.FAILURE, [_, str(code), str(message), dict(details)]:
                future.set_exception(from_code(code, message, details))
            case _:
                raise MalformedFrame(f"the answer {fields!r} is malformed")

    def peer_lost(self, peer: NodeId) -> None:
        """End all open requests to this peer with an error, and cancel the handling of its requests."""
        for asked, future in self._open.values():
            if asked == peer and not future.done():
                future.set_exception(ConnectionLost(f"lost broker {peer} before it answered", sent=True))
        for task, (asker, _) in self._running.items():
            if asker == peer:
                task.cancel()

    async def stop(self) -> None:
        """Cancel the running handlers."""
        tasks = list(self._running)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _question(self, sender: NodeId, fields: list[object], payload: memoryview) -> None:
        match fields:
            case [int(call_id), str(name), bytes(head)]:
                pass
            case _:
                raise MalformedFrame(f"the request {fields!r} is malformed")
        service, handler = self._services.get(name, (None, None))
        if service is None or handler is None:
            # An older release: another broker may offer this service.
            refusal: RaftlogError = NotLeader(f"this broker offers no service {name!r}", leader=None)
        elif self._served[kind := _class_of(service, head)] >= CALLS_MAX[kind]:
            refusal = _overloaded(kind)
        else:
            work = self._answer(sender, call_id, service, partial(handler, sender, head, payload))
            task = asyncio.get_running_loop().create_task(work)
            self._running[task] = sender, kind
            self._served[kind] += 1
            task.add_done_callback(self._forget)
            return
        self._send(sender, _failure(call_id, refusal))

    def _forget(self, task: asyncio.Task[None]) -> None:
        _, kind = self._running.pop(task)
        self._served[kind] -= 1

    async def _answer(
        self, sender: NodeId, call_id: int, service: Service, answer: Callable[[], Answering]
    ) -> None:
        # A fetch has no effect, so its answer may be dropped.
        instead = partial(_failure, call_id, _TOO_MUCH_HELD) if service.kind is CallClass.FETCH else None
        try:
            await self._deliver(sender, await _frame_of(call_id, sender, service, answer), instead)
        except InvalidRequest as error:  # the answer is too large, and the request was carried out
            _log.error("the answer of service %s for broker %d is lost: %s", service.name, sender, error)
            await self._deliver(sender, _failure(call_id, _lost(f"the answer of {service.name} is {error}")))

    async def _deliver(
        self,
        peer: NodeId,
        frame: Sequence[Buffer],
        instead: Callable[[], Sequence[Buffer]] | None = None,
    ) -> None:
        """Send an answer, if necessary after a wait until its link accepts it.

        The request came over another link, and its caller waits. If too many bytes wait already, the result
        of ``instead`` is sent.
        """
        if self._send(peer, frame):
            return
        size_bytes = sum(map(len, frame))
        if instead is not None and self._held_bytes + size_bytes > HELD_BYTES_MAX:
            frame, size_bytes = instead(), 0
        self._held_bytes += size_bytes
        try:
            for _ in range(ANSWER_TRIES_MAX):
                await asyncio.sleep(ANSWER_AGAIN_S)
                if self._send(peer, frame):
                    return
        finally:
            self._held_bytes -= size_bytes

    def _send(self, peer: NodeId, frame: Sequence[Buffer]) -> bool:
        try:
            return self._transport.send(peer, frame)
        except ValueError as error:
            raise InvalidRequest(f"too large for one message between brokers: {error}") from error


def _class_of(service: Service, head: bytes) -> CallClass:
    try:
        return service.kind if service.kind_of is None else service.kind_of(head)
    except UNREADABLE:
        return service.kind  # the handler refuses the malformed head


def _lost(why: str) -> ConnectionLost:
    return ConnectionLost(why, sent=True)


def _overloaded(kind: CallClass) -> Overloaded:
    return Overloaded(
        f"too many calls of class {kind.value} between brokers are open; retry",
        retry_after_ms=RETRY_AFTER_MS[kind],
    )


_TOO_MUCH_HELD: Final = Overloaded(
    "too many records wait to be sent to the broker that requested them; retry, or ask their leader",
    retry_after_ms=RETRY_AFTER_MS[CallClass.FETCH],
)


async def _frame_of(
    call_id: int, sender: NodeId, service: Service, answer: Callable[[], Answering]
) -> list[Buffer]:
    """Run a handler; return the frame of its answer or failure.

    No variable of a caller refers to the answer's records then.
    """
    try:
        head, data = await answer()
        return encode_frame(FrameKind.ANSWER, [call_id, head], data)
    except RaftlogError as error:
        release(error)
        return _failure(call_id, error)
    except Exception as error:
        # The effect of the request is unknown: the caller must not treat it as refused.
        _log.exception("service %s failed for broker %d", service.name, sender)
        release(error)
        return _failure(call_id, _lost(f"service {service.name} failed on the broker that was asked"))


def _failure(call_id: int, error: RaftlogError) -> list[Buffer]:
    return encode_frame(FrameKind.FAILURE, [call_id, error.code, str(error), error.details])


def encode_body(body: object) -> bytes:
    """Encode the head of a request or an answer: a struct, or any value that msgspec encodes."""
    return msgspec.msgpack.encode(body)


def decode_body(head: bytes, kind: type[Body]) -> Body:
    """Decode the struct in the head of a request or an answer. Raises ``InvalidRequest``."""
    try:
        return msgspec.msgpack.decode(head, type=kind)
    except UNREADABLE as error:
        name = getattr(kind, "__name__", str(kind))
        raise InvalidRequest(
            f"a broker of another version has sent a {name} that this broker cannot decode: {error}"
        ) from None


def handler_of(kind: type[Body], answer: Callable[[NodeId, Body], Awaitable[object]]) -> Handler:
    """The handler of a service whose requests and answers are bodies without payloads.

    ``answer`` receives the caller and the request; if it returns None, the answer is empty.
    """

    async def handle(sender: NodeId, head: bytes, payload: memoryview) -> tuple[bytes, Sequence[Buffer]]:
        found = await answer(sender, decode_body(head, kind))
        return b"" if found is None else encode_body(found), ()

    return handle
