"""Ends open transactions in partitions that this broker leads, if an unsafe recovery has lost their markers.

Decides: when coordinators are asked, and how a transaction ends if no coordinator knows its outcome. Leaves
to others: the outcomes (``transactions.outcomes``), writing the marker (``partitions.replica``).

A leader that has applied all committed entries looks for open transactions before it asks the coordinators,
and again after their answers. A transaction is complete only when all its markers are acknowledged, so a
marker that is still missing was lost. If no coordinator knows the outcome any more, the transaction is
aborted in this partition. An unsafe recovery may lose these records, too, but readers must never see aborted
records.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from itertools import islice
from typing import Final

from partitions.replica.replica import PartitionReplica
from partitions.replica.transaction_table import OpenTransaction
from raftlog.errors import RaftlogError
from raftlog.records.control import Marker
from raftlog.types import TopicPartition
from transactions.service import TransactionService

LOOK_MS: Final = 30_000
TIMEOUT_MS: Final = 5_000
ASKED_MAX: Final = 1_000  # transactions per look; others wait for the next look
LOOKED_AT_MAX: Final = 200  # replicas per turn of the event loop
_log = logging.getLogger("raftlog.transactions")

Found = tuple[PartitionReplica, OpenTransaction]


class LostMarkers:
    """Finds transactions whose markers were lost, and writes the markers. Used on the event loop's thread
    only.
    """

    def __init__(
        self, service: TransactionService, replicas: Mapping[tuple[str, int], PartitionReplica]
    ) -> None:
        self._service = service
        self._replicas = replicas
        self._before: dict[TopicPartition, frozenset[OpenTransaction]] = {}

    async def run(self) -> None:
        """Call ``look`` every ``LOOK_MS``, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_MS / 1000)
            await self.look()

    async def look(self) -> None:
        """Ask the coordinators about transactions that were open in the last look, too, and write the lost
        markers.

        Most transactions are shorter than the time between two looks, so no coordinator is asked about them.
        """
        old = await self._open_since_the_last_look()
        if not old:
            return
        try:
            known = await self._service.known({(each.producer_id, each.epoch) for _, each in old}, TIMEOUT_MS)
            still_open, committed = {*known.open}, {*known.committed}
            for replica, each in old:
                number = each.producer_id, each.epoch
                if number not in still_open and each in replica.open_transactions():
                    marker = Marker(*number, number in committed, 0, 0)
                    _log.warning(
                        "%s has lost the marker of a transaction; this broker writes %s",
                        replica.target,
                        marker,
                    )
                    await replica.mark(marker, timeout_ms=TIMEOUT_MS)
        except RaftlogError as error:
            _log.info("long-open transactions are not resolved yet, the next look tries again: %s", error)

    async def _open_since_the_last_look(self) -> list[Found]:
        before, self._before = self._before, {}
        old: list[Found] = []
        for number, replica in enumerate(list(self._replicas.values()), 1):
            if not number % LOOKED_AT_MAX:
                await asyncio.sleep(0)
            if not (found := replica.open_transactions()):
                continue  # the usual case
            self._before[replica.target] = frozenset(found)
            seen = before.get(replica.target, frozenset())
            lasting = ((replica, each) for each in found if each in seen)
            old += islice(lasting, ASKED_MAX - len(old))
        return old
