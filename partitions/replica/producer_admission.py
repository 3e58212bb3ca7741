"""Which new producers a broker takes in for the partitions that it leads.

Decides: that a producer's id was allocated, and that this broker has room to remember it. A producer table
is the same on all replicas, so nothing is evicted for the sake of one broker: the leader refuses instead.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final, Protocol

from partitions.metadata.producer_ids import ProducerIdCipher
from partitions.metadata.source import MetadataSource
from raftlog.clock import Clock
from raftlog.errors import InvalidRequest, Overloaded

PRODUCERS_MAX: Final = 250_000  # about 100 MB
RECOUNT_S: Final = 1.0  # counting touches every replica
RETRY_AFTER_MS: Final = 5000


class Remembers(Protocol):
    """The part of a replica that is needed here."""

    @property
    def producers(self) -> int:
        """How many producers it remembers."""


class ProducerAdmission:
    """One broker's, for all of its ``replicas``."""

    def __init__(
        self,
        metadata: MetadataSource,
        replicas: Callable[[], Iterable[Remembers]],
        clock: Clock,
        ids: ProducerIdCipher,
        producers_max: int = PRODUCERS_MAX,
    ) -> None:
        self._metadata = metadata
        self._replicas = replicas
        self._clock = clock
        self._ids = ids
        self._producers_max = producers_max
        self._count = 0  # remembered at the last count, and admitted since
        self._counted_at_s: float | None = None

    @property
    def remembered(self) -> int:
        """How many producers the replicas here remember, all partitions together."""
        return sum(replica.producers for replica in self._replicas())

    async def admit(self, producer_ids: Collection[int], timeout_ms: float) -> None:
        """Return if these producers, unknown to a partition that is led here, may write to it.

        Raises ``InvalidRequest`` for an id that was never allocated, ``Overloaded`` where this broker
        remembers as many producers as it may, ``NoLeader`` when the metadata cannot be asked.
        """
        newest, producer_id = max((self._ids.number_of(one), one) for one in producer_ids)
        if newest >= self._metadata.image.next_producer_id:  # unless the metadata here is behind
            image = await self._metadata.current_image(max(1, int(timeout_ms)))
            if newest >= image.next_producer_id:
                raise InvalidRequest(
                    f"producer id {producer_id} was never allocated; get one from POST /v1/producers",
                    field="producer_id",
                )
        now_s = self._clock.monotonic()
        if self._counted_at_s is None or now_s - self._counted_at_s >= RECOUNT_S:
            self._count, self._counted_at_s = self.remembered, now_s
        if self._count + len(producer_ids) > self._producers_max:
            raise Overloaded(
                f"this broker remembers {self._count} producers, limits.producers_max is "
                f"{self._producers_max}; reuse producers, or retry when others have expired",
                retry_after_ms=RETRY_AFTER_MS,
            )
        self._count += len(producer_ids)
