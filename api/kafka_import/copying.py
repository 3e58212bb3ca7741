"""Copies records of Kafka in transactions, and continues earlier imports.

Decides: when a transaction ends, and which errors are retried. Leaves to others: Kafka (``source``), and the
contents of an account (``accounts``).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

import msgspec

from api.kafka_import.accounts import SUFFIX, Account, runs_of
from api.kafka_import.source import Found, Lost, Source
from raftlog.client import AsyncClient
from raftlog.client.bulk import size_of
from raftlog.client.producer import AsyncProducer
from raftlog.client.transaction import AsyncTransaction
from raftlog.errors import NoLeader, RaftlogError, RecordTooLarge
from raftlog.wire.bodies import TopicDescription

RECORDS_MAX = 10_000  # records of a transaction; in the worst case its account has a run for each
ATTEMPTS = 5
PAUSE_S = 1.0
SETTLED_WITHIN_S = 60.0
EMPTY_READS_MAX = 20

Progress = Callable[[Sequence[Found]], None]
IsOver = Callable[[], bool]


def accounts_of(topic: str) -> str:
    """Return the name of the topic with the accounts of an import into ``topic``."""
    return f"{topic}{SUFFIX}"


class Copying:
    """One run of an import, which copies records."""

    def __init__(
        self, client: AsyncClient, source: Source, target: TopicDescription, progress: Progress
    ) -> None:
        self._client = client
        self._source = source
        self._target = target
        self._progress = progress
        self.lost: list[Lost] = []
        self._begun = Account(source.cluster, source.topic, target.topic_id, {})

    async def run(self, until: Mapping[int, int] | None, is_over: IsOver) -> None:
        """Copy the records of Kafka before the offsets ``until``; without ``until``, copy until ``is_over``.

        Retries temporary errors. Raises ``ProducerFenced`` if another run has begun, and ``Conflict`` for
        another import.
        """
        failures = 0
        while True:
            before = self._begun
            try:
                async with self._producer() as producer:
                    await self._copy(producer, until, is_over)
                return
            except RaftlogError as error:
                failures = 1 if self._begun is not before else failures + 1
                if not error.retryable or failures >= ATTEMPTS:
                    raise
            await asyncio.sleep(PAUSE_S)

    def _producer(self) -> AsyncProducer:
        bytes_max = int(self._target.config["max.message.bytes"])
        return self._client.producer(
            self._target.name,
            preset="throughput",
            batch_bytes=min(256 << 10, bytes_max),
            compression="zstd",
            transactional_id=f"import~{self._target.name}",
            transaction_timeout="2m",
        )

    async def _copy(self, producer: AsyncProducer, until: Mapping[int, int] | None, is_over: IsOver) -> None:
        async with producer.transaction():
            pass  # fences the previous run, and settles its last transaction
        newest = await self._newest()
        if newest is not None:
            newest.check(self._begun)
            self._begun = newest
        self.lost += await self._source.begin(self._begun.following)
        if newest is None:
            await self._claim(producer)
        empty_reads = 0
        while not is_over():
            found = await self._source.read(RECORDS_MAX)
            following = await self._source.following()
            if found:
                await self._store(producer, found, following)
                self._progress(found)
            elif until is not None and all(following[number] >= at for number, at in until.items()):
                return
            empty_reads = 0 if found else empty_reads + 1
            if until is not None and empty_reads % EMPTY_READS_MAX == EMPTY_READS_MAX - 1:
                await self._source.ends()  # raises if Kafka is down, while a read just waits

    async def _claim(self, producer: AsyncProducer) -> None:
        """Write the first account, which reserves the target for this topic of Kafka."""
        self._begun = msgspec.structs.replace(self._begun, following=await self._source.following())
        async with producer.transaction() as transaction:
            await self._tell(transaction, self._begun)

    async def _store(
        self, producer: AsyncProducer, found: Sequence[Found], following: dict[int, int]
    ) -> None:
        """Store the copied records and their account in one transaction."""
        try:
            self._begun = await self._stored(producer, found, following)
        except RecordTooLarge as error:
            largest = max(found, key=lambda each: size_of(each.record))
            raise RecordTooLarge(
                f"offset {largest.offset} of partition {largest.partition} in Kafka: {error}", **error.details
            ) from error

    async def _stored(
        self, producer: AsyncProducer, found: Sequence[Found], following: dict[int, int]
    ) -> Account:
        async with producer.transaction() as transaction:
            pending = []
            for partition, offset, record in found:
                sent = await transaction.send(
                    record.value,
                    key=record.key,
                    partition=partition,
                    headers=record.headers,
                    timestamp=record.timestamp_ms,
                )
                pending.append((partition, offset, sent))
            pairs = defaultdict(list)
            for partition, offset, sent in pending:
                pairs[partition].append((offset, (await sent).offset))
            runs = {partition: runs_of(some) for partition, some in pairs.items()}
            account = msgspec.structs.replace(self._begun, following=following, runs=runs)
            await self._tell(transaction, account)
        return account

    async def _tell(self, transaction: AsyncTransaction, account: Account) -> None:
        await transaction.send(
            msgspec.json.encode(account), topic=accounts_of(self._target.name), partition=0
        )

    async def _newest(self) -> Account | None:
        """Return the newest account, once no transaction of the previous run is open."""
        partition = self._client.partition(accounts_of(self._target.name), 0)
        for _ in range(int(SETTLED_WITHIN_S / PAUSE_S)):
            chunk = await partition.read(-1)
            if chunk.last_stable_offset >= chunk.high_watermark:
                accounts = [msgspec.json.decode(each.value, type=Account) for each in chunk]
                return accounts[-1] if accounts else None
            await asyncio.sleep(PAUSE_S)
        raise NoLeader("the last transaction of the previous run is not settled yet; retry")


async def accounts(client: AsyncClient, topic: str) -> AsyncIterator[Account]:
    """Yield all accounts of an import, the oldest account first."""
    partition, at = client.partition(accounts_of(topic), 0), 0
    while chunk := await partition.read(at):
        for each in chunk:
            yield msgspec.json.decode(each.value, type=Account)
        at = chunk.next_offset
