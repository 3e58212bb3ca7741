"""Members of the group that copies: one kind uses plain HTTP requests, one the Python client."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

import msgspec

from chaos.exactly_once.copies import (
    OF_HEADER,
    RECORDS_PER_TRANSACTION,
    SOURCE,
    TRANSACTION_HEADER,
    Input,
    new_transaction,
    output_of,
)
from chaos.http_client import Client
from raftlog.aio import Client as PythonClient
from raftlog.errors import NotSent, RaftlogError, TransactionNotFound
from raftlog.wire import groups as wire
from raftlog.wire import media_types, members, transactions
from raftlog.wire.bodies import Message
from raftlog.wire.decoding import decoder_of

SESSION_MS: Final = 4_000
TIMEOUT_MS: Final = 5_000  # of a transaction
ANSWER_S: Final = 15.0
PAUSE_S: Final = (0.02, 0.2)  # pause after an error

Headers = dict[str, str]


def headers_of(transaction: str, records: int) -> Headers:
    """Return the headers of each output of one transaction: they name the input and the transaction."""
    return {TRANSACTION_HEADER: transaction, OF_HEADER: str(records)}


@dataclass(slots=True)
class HttpCopier:
    """A copier that alternates between polls and ``:execute`` requests.

    The copier keeps no state. After an error it aborts its transaction, which may be open, and polls again.
    """

    group: str
    name: str
    client: Client
    errors: Counter[str] = field(default_factory=Counter)
    generation: int = -1

    @property
    def _transactional_id(self) -> str:
        return f"{self.group}-{self.name}"

    async def run(self) -> None:
        """Copy until this task is cancelled."""
        may_be_open = False
        while True:
            try:
                if may_be_open:
                    await self._abort()
                    may_be_open = False
                polled = await self._poll()
                may_be_open = True
                await self._copy(polled)
                may_be_open = False
            except RaftlogError as error:
                self.errors[type(error).__name__] += 1
                if not isinstance(error, NotSent):
                    self.generation = -1
                self.client.rotate()
                await asyncio.sleep(self.client.rng.uniform(*PAUSE_S))

    async def leave(self) -> None:
        """Leave the group. If the request fails, the member's session ends by itself."""
        path = members.LEAVE.at(group=self.group, member=self.name)
        await self.client.call("DELETE", path, None, {}, answer_s=ANSWER_S)

    async def _poll(self) -> wire.PolledGroup:
        """Poll once; return the records after the committed offsets."""
        body = wire.PollGroup(
            topics=[SOURCE],
            generation=self.generation,
            limit=RECORDS_PER_TRANSACTION,
            wait="1s",
            session_timeout=SESSION_MS,
        )
        path = members.POLL.at(group=self.group, member=self.name)
        polled = decoder_of(wire.PolledGroup).decode(await self._ask(path, body))
        self.generation = polled.generation
        return polled

    async def _abort(self) -> None:
        """Abort the open transaction of this copier; does nothing if it is committed."""
        path = transactions.ABORT.at(transaction=self._transactional_id)
        with contextlib.suppress(TransactionNotFound):
            await self.client.call("POST", path, None, {}, answer_s=ANSWER_S)

    async def _copy(self, polled: wire.PolledGroup) -> None:
        if not polled.records:
            return
        sent = headers_of(new_transaction(), len(polled.records))
        following: dict[int, int] = {}
        for message in polled.records:
            following[message.partition] = message.offset + 1
        await self._ask(
            f"{transactions.EXECUTE.path}?timeout={TIMEOUT_MS}ms",
            {
                "transactional_id": self._transactional_id,
                "records": [_output(number, message, sent) for number, message in enumerate(polled.records)],
                "group_offsets": {
                    "group": self.group,
                    "member_id": self.name,
                    "generation": self.generation,
                    "offsets": [
                        {"topic": SOURCE, "partition": partition, "offset": offset}
                        for partition, offset in following.items()
                    ],
                },
            },
        )

    async def _ask(self, path: str, body: object) -> bytes:
        """Send a request with a single attempt. Raises ``RaftlogError``."""
        sent = {"Content-Type": media_types.JSON}
        _, found, _ = await self.client.call("POST", path, msgspec.json.encode(body), sent, answer_s=ANSWER_S)
        return found


def _output(number: int, message: Message, sent: Headers) -> dict[str, object]:
    of = str(Input(message.partition, message.offset))
    return {"topic": output_of(number), "key": of, "value": of, "headers": sent}


@dataclass(slots=True)
class ClientCopier:
    """A copier that runs the loop which the documentation shows for the Python client."""

    group: str
    name: str
    urls: list[str]
    errors: Counter[str] = field(default_factory=Counter)

    async def run(self) -> None:
        """Copy until this task is cancelled; then leave the group."""
        while True:
            try:
                await self._copy_all()
            except RaftlogError as error:
                self.errors[type(error).__name__] += 1
                await asyncio.sleep(PAUSE_S[1])

    async def leave(self) -> None:
        """Return at once, because ``run`` has left the group."""

    async def _copy_all(self) -> None:
        async with (
            PythonClient(self.urls) as client,
            client.consumer(
                self.group,
                SOURCE,
                member_id=self.name,
                delivery="exactly_once",
                transaction_timeout=f"{TIMEOUT_MS}ms",
                session_timeout=f"{SESSION_MS}ms",
            ) as consumer,
        ):
            async for batch in consumer.batches(limit=RECORDS_PER_TRANSACTION):
                sent = headers_of(new_transaction(), len(batch))
                async with batch.transaction() as tx:
                    for number, message in enumerate(batch):
                        of = str(Input(message.partition, message.offset))
                        await tx.send(output_of(number), of, key=of, headers=sent)


Copier = HttpCopier | ClientCopier
