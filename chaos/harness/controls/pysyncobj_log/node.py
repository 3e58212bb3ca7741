"""Runs one node as a process: unmodified pysyncobj, and a socket for clients. The process ends when its
standard input ends.

``python -m chaos.harness.controls.pysyncobj_log.node SETTINGS``, where ``SETTINGS`` is a JSON object.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

import msgspec
from pysyncobj import FAIL_REASON, SyncObj, SyncObjConf, replicated
from pysyncobj.node import Node
from pysyncobj.transport import Transport

from chaos.harness.controls.pysyncobj_log.messages import (
    LINE_BYTES_MAX,
    Answer,
    Append,
    Appended,
    Describe,
    Read,
    Refused,
    Request,
    State,
    Uncertain,
    Values,
)

_REQUESTS = msgspec.json.Decoder(Request)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The addresses of one node and of its peers, and the path of its journal."""

    own: str  # host:port of its name, where it also listens for other nodes
    others: list[str]  # as this node knows them: the other nodes, or the links to them
    client_port: int
    journal: str


class ReplicatedLog(SyncObj):  # type: ignore[misc]
    """The values that the library has applied on this node.

    An append is acknowledged when the library reports that it is committed and applied. The callback of an
    append gets the offset of the value and a constant of ``pysyncobj.FAIL_REASON``.
    """

    def __init__(
        self,
        own: str | Node,
        others: Sequence[str | Node],
        conf: SyncObjConf,
        transport: Transport | None = None,
    ) -> None:
        self._values: list[str] = []  # set before the library inspects all attributes
        super().__init__(own, others, conf, transport=transport)

    @property
    def values(self) -> list[str]:
        """Values applied on this node, in the order of their offsets."""
        return list(self._values)

    @replicated  # type: ignore[untyped-decorator]
    def append(self, value: str, padding: str) -> int:
        """Append a value; return its offset. ``padding`` only makes the entry larger."""
        self._values.append(value)
        return len(self._values) - 1


class Face:
    """Answers the requests of clients on the event loop; the library runs on its own thread."""

    def __init__(self, log: ReplicatedLog) -> None:
        self._log = log
        self._loop = asyncio.get_running_loop()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection, one request after another."""
        try:
            while line := await reader.readline():
                answer = await self._answer(_REQUESTS.decode(line))
                writer.write(msgspec.json.encode(answer) + b"\n")
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def _answer(self, request: Request) -> Answer:
        match request:
            case Append():
                return await self._append(request)
            case Read():
                return Values(self._log.values)
            case Describe():
                return self._state()

    def _state(self) -> State:
        log = self._log
        return State(
            is_leader=log._isLeader(),
            term=log.raftCurrentTerm,
            committed=log.raftCommitIndex,
            entries=log._getRaftLogSize(),
        )

    async def _append(self, request: Append) -> Answer:
        if not self._log._isLeader():
            return Refused()
        answered: asyncio.Future[Answer] = self._loop.create_future()

        def answer(offset: int | None, reason: int) -> None:  # on the library's thread
            done = reason == FAIL_REASON.SUCCESS and offset is not None
            self._loop.call_soon_threadsafe(
                answered.set_result, Appended(offset) if done and offset is not None else Uncertain(reason)
            )

        self._log.append(request.value, request.padding, callback=answer)
        return await answered


async def _main(settings: Settings) -> None:
    conf = SyncObjConf(
        journalFile=settings.journal,
        bindAddress=settings.own,
        connectionRetryTime=0.1,
        raftMinTimeout=3.0,  # longer than any cut of a link: only the end of a leader causes an election
        raftMaxTimeout=3.5,
    )
    log = ReplicatedLog(settings.own, settings.others, conf)
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), stopped.set)  # the input gets no data: it is readable once it ends
    server = await asyncio.start_server(
        Face(log).serve, "127.0.0.1", settings.client_port, limit=LINE_BYTES_MAX
    )
    await stopped.wait()
    server.close()
    await asyncio.to_thread(log.destroy_synchronous)


if __name__ == "__main__":
    asyncio.run(_main(msgspec.json.decode(sys.argv[1], type=Settings)))
