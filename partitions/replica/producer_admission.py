"""Admits new producers to the partitions that a broker leads.

The module checks that a producer's id was allocated, that this broker has room to remember the producer, and
that its client has not added too many producers. All replicas have equal producer tables, so a single broker
cannot evict producers: the leader refuses new producers instead.

The tables do not record the client of a producer. So a leader counts the producers that each address adds: up
to a share of the maximum at once, and as many again over the day after which a silent producer is forgotten.
The counts begin at 0 in a new process.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from math import ceil
from typing import Final, Protocol

from partitions.metadata.producer_ids import ProducerIdCipher
from partitions.metadata.source import MetadataSource
from partitions.replica.producer_table import EXPIRATION_MS
from raftlog.clock import Clock
from raftlog.errors import InvalidRequest, Overloaded, QuotaExceeded
from raftlog.hosting.budget import SHARE

PRODUCERS_MAX: Final = 500_000  # about 200 MB
CLIENTS_MAX: Final = 10_000  # counted addresses; above it, those with the fewest producers are forgotten
RECOUNT_S: Final = 1.0  # interval between counts, each of which visits every replica
RETRY_AFTER_MS: Final = 5000


class Remembers(Protocol):
    """A replica that has a number of producers in its table."""

    @property
    def producers(self) -> int:
        """The number of producers in the replica's producer table."""


class ProducerAdmission:
    """Admits new producers to all ``replicas`` of one broker, within limits for the broker and for each
    client.
    """

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
        self._added = _Added(max(1, producers_max // SHARE))
        self._count = 0  # remembered at the last count, and admitted since
        self._counted_at_s: float | None = None

    @property
    def remembered(self) -> int:
        """The number of producers in the tables of all replicas of this broker."""
        return sum(replica.producers for replica in self._replicas())

    async def admit(self, producer_ids: Collection[int], timeout_ms: float, client: str = "") -> None:
        """Admit producers that are new to a partition led by this broker, or raise an error.

        Raises ``InvalidRequest`` for an id that was never allocated, ``Overloaded`` if this broker has its
        maximum of producers, ``QuotaExceeded`` if the client has added too many producers, ``NoLeader`` if
        the current metadata cannot be read. A client without an address has no quota.
        """
        newest, producer_id = max((self._ids.number_of(one), one) for one in producer_ids)
        if newest >= self._metadata.image.next_producer_id:  # the metadata of this broker may be old
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
                f"this broker remembers {self._count} producers, and limits.producers_max is "
                f"{self._producers_max}; reuse producers, or retry when other producers have expired",
                retry_after_ms=RETRY_AFTER_MS,
            )
        if client:
            self._added.add(client, len(producer_ids), now_s)
        self._count += len(producer_ids)


class _Added:
    """The number of producers that each client has added; each number falls with time."""

    def __init__(self, share: int) -> None:
        self._share = share
        self._per_s = share * 1_000 / EXPIRATION_MS
        self._of: dict[str, tuple[float, float]] = {}  # number, and the time in seconds at which it held

    def add(self, client: str, count: int, now_s: float) -> None:
        """Count new producers of a client.

        If they would be too many, count none and raise ``QuotaExceeded``.
        """
        after = self._left(client, now_s) + count
        if after > self._share:
            raise QuotaExceeded(
                f"client {client} has added {self._share} producers on this broker within a day; reuse "
                "producers, or raise limits.producers_max, of which each client may add a quarter",
                retry_after_ms=ceil(1_000 * (after - self._share) / self._per_s),
                limit=self._share,
            )
        self._of[client] = after, now_s
        if len(self._of) > CLIENTS_MAX:
            most = sorted(self._of, key=lambda one: self._left(one, now_s), reverse=True)
            self._of = {one: self._of[one] for one in most[: CLIENTS_MAX // 2]}

    def _left(self, client: str, now_s: float) -> float:
        number, at_s = self._of.get(client, (0.0, now_s))
        return max(0.0, number - (now_s - at_s) * self._per_s)
