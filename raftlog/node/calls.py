"""Requests and answers between brokers, over the same authenticated links as Raft's messages.

Decides: how an answer finds its question and how an error travels. Leaves to others: what the
services do. A call is not retried here; when the link breaks or the time runs out the caller
gets ``ConnectionLost`` and only it knows whether asking again is harmless.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from raftlog.clock import Clock
from raftlog.errors import ConnectionLost, InvalidRequest, RaftlogError, from_code
from raftlog.node.codec import FrameKind, MalformedFrame, encode_frame, unpack_head
from raftlog.node.transport import Transport
from raftlog.storage.filesystem import Buffer
from raftlog.types import NodeId

Handler = Callable[[NodeId, bytes, memoryview], Awaitable[tuple[bytes, Sequence[Buffer]]]]
"""Takes caller, head and payload; gives head and payload of the answer, or raises a RaftlogError."""


class Calls:
    """One broker's open questions and the services it offers to its peers."""

    def __init__(self, transport: Transport, clock: Clock) -> None:
        self._transport = transport
        self._clock = clock
        self._services: dict[str, Handler] = {}
        self._open: dict[int, tuple[NodeId, asyncio.Future[tuple[bytes, memoryview]]]] = {}
        self._running: dict[asyncio.Task[None], NodeId] = {}
        self._last_id = 0

    def serve(self, service: str, handler: Handler) -> None:
        """Offer a service under a name; one handler a name."""
        self._services[service] = handler

    async def call(
        self,
        peer: NodeId,
        service: str,
        head: bytes,
        payload: Sequence[Buffer] = (),
        *,
        timeout_ms: int,
    ) -> tuple[bytes, memoryview]:
        """Ask a peer; return head and payload of its answer.

        Raises what the handler raised, by its code, and ``ConnectionLost`` when the link is or
        goes down or ``timeout_ms`` runs out: ``sent`` in its details says whether the question
        may have arrived.
        """
        self._last_id += 1
        call_id = self._last_id
        future: asyncio.Future[tuple[bytes, memoryview]] = asyncio.get_running_loop().create_future()
        self._open[call_id] = (peer, future)
        try:
            frame = encode_frame(FrameKind.CALL, [call_id, service, head], payload)
            if not self._transport.send(peer, frame):
                raise ConnectionLost(f"broker {peer} cannot be reached", sent=False)
            async with asyncio.timeout(timeout_ms / 1000):
                return await future
        except TimeoutError:
            raise ConnectionLost(f"broker {peer} did not answer within {timeout_ms} ms", sent=True) from None
        finally:
            del self._open[call_id]

    def frame_received(self, sender: NodeId, kind: FrameKind, head: memoryview, payload: memoryview) -> None:
        """Take a ``CALL``, ``ANSWER`` or ``FAILURE`` frame. Raises ``MalformedFrame``."""
        fields = unpack_head(head)
        if kind is FrameKind.CALL:
            task = asyncio.get_running_loop().create_task(self._handle(sender, fields, payload))
            self._running[task] = sender
            task.add_done_callback(self._forget)
            return
        _, future = self._open.get(fields[0] if isinstance(fields[0], int) else -1, (None, None))
        if future is None or future.done():
            return  # its caller has gone
        match kind, fields:
            case FrameKind.ANSWER, [_, bytes(answer)]:
                future.set_result((answer, payload))
            case FrameKind.FAILURE, [_, str(code), str(message), dict(details)]:
                future.set_exception(from_code(code, message, details))
            case _:
                raise MalformedFrame(f"answer {fields!r}")

    def peer_lost(self, peer: NodeId) -> None:
        """Fail every question that this peer still owes an answer, and drop its own questions."""
        for asked, future in self._open.values():
            if asked == peer and not future.done():
                future.set_exception(ConnectionLost(f"lost broker {peer} before it answered", sent=True))

    async def stop(self) -> None:
        """Cancel the handlers that run."""
        tasks = list(self._running)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task, None)

    async def _handle(self, sender: NodeId, fields: list[object], payload: memoryview) -> None:
        match fields:
            case [int(call_id), str(service), bytes(head)]:
                frame = await self._answer(sender, call_id, service, head, payload)
                self._transport.send(sender, frame)
            case _:
                return  # a peer of another version: it will run into its time-out

    async def _answer(
        self, sender: NodeId, call_id: int, service: str, head: bytes, payload: memoryview
    ) -> list[Buffer]:
        try:
            handler = self._services.get(service)
            if handler is None:
                raise InvalidRequest(f"this broker offers no service {service!r}")
            answer, data = await handler(sender, head, payload)
            return encode_frame(FrameKind.ANSWER, [call_id, answer], data)
        except RaftlogError as error:
            return encode_frame(FrameKind.FAILURE, [call_id, error.code, str(error), error.details])
