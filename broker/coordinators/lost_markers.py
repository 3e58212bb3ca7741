"""Ends transactions in partitions that are led here, whose marker an unsafe recovery has lost.

Decides: when coordinators are asked, and what is done where none of them knows the outcome. Leaves to others:
what a coordinator knows (``transactions.outcomes``), writing the marker (``partitions.replica``).

The transaction is found open by a leader that has applied everything committed, before the coordinators are
asked, and again behind their answers. A transaction is complete only with all its markers acknowledged, so a
marker that is missing then was lost. Where the outcome is forgotten, the transaction is aborted here: a
recovery that loses records is permitted to lose these, too, but aborted ones must never be shown.
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
ASKED_MAX: Final = 1_000  # transactions of one look; the others wait for the next
LOOKED_AT_MAX: Final = 200  # replicas in one turn of the event loop
_log = logging.getLogger("raftlog.transactions")

Found = tuple[PartitionReplica, OpenTransaction]


class LostMarkers:
    """One broker's part. All on the event loop's thread."""

    def __init__(
        self, service: TransactionService, replicas: Mapping[tuple[str, int], PartitionReplica]
    ) -> None:
        self._service = service
        self._replicas = replicas
        self._before: dict[TopicPartition, frozenset[OpenTransaction]] = {}

    async def run(self) -> None:
        """Look now and then, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_MS / 1000)
            await self.look()

    async def look(self) -> None:
        """Ask for what is open since the last look; most transactions are shorter and cost nothing."""
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
                        "%s has lost the marker of a transaction; it gets %s", replica.target, marker
                    )
                    await replica.mark(marker, timeout_ms=TIMEOUT_MS)
        except RaftlogError as error:
            _log.info("transactions that are open for long are not resolved yet: %s", error)

    async def _open_since_the_last_look(self) -> list[Found]:
        before, self._before = self._before, {}
        old: list[Found] = []
        for number, replica in enumerate(list(self._replicas.values()), 1):
            if not number % LOOKED_AT_MAX:
                await asyncio.sleep(0)
            if not (found := replica.open_transactions()):
                continue  # nearly always
            self._before[replica.target] = frozenset(found)
            seen = before.get(replica.target, frozenset())
            lasting = ((replica, each) for each in found if each in seen)
            old += islice(lasting, ASKED_MAX - len(old))
        return old
