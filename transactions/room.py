"""Checks the room for another transactional id or sink, more partitions, or another keyed request.

Decides: which clients are refused, their retry times and errors. Leaves to others: the memory of rows
(``state``, ``kept_requests``), and deleting old rows (``decisions``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from raftlog.hosting.budget import RECHECK_MS, Budget
from transactions import keyed_requests
from transactions.kept_requests import KEY_BYTES
from transactions.records import Sink, State, Transaction
from transactions.state import PARTITION_BYTES, TransactionsState

STATE_BYTES_MAX: Final = 32 << 20  # of one partition, without keyed requests
KEYS_BYTES_MAX: Final = 56 << 20  # of one partition
KEYS_SHARE: Final = 2  # one address may use half, as the clients of a service may share it
LOOK_MS: Final = 1_000  # interval of the search for expired keys while there is no room
_WHAT: Final = "bytes of transactional ids and sinks"
_NEW: Final = Transaction(producer_id=0, epoch=0, state=State.EMPTY)


class Room:
    """The room in one partition of ``__transactions``, shared by clients.

    A client is identified by its address.
    """

    def __init__(
        self,
        state: TransactionsState,
        *,
        state_bytes_max: int,
        keys_bytes_max: int,
        id_retention_ms: int,
        key_retention_ms: int,
    ) -> None:
        self._state = state
        self._id_retention_ms = id_retention_ms
        self._key_retention_ms = key_retention_ms
        self._names = Budget(
            _WHAT,
            state_bytes_max,
            "use fewer, which are forgotten transactions.id_retention_ms after their last use, or raise "
            "transactions.state_bytes_max",
        )
        self._parts = Budget(
            _WHAT,
            state_bytes_max,
            "write to fewer partitions in a transaction, or from fewer tasks of a sink, or raise "
            "transactions.state_bytes_max",
        )
        self._keys = Budget(
            "bytes of idempotency keys and their answers",
            keys_bytes_max,
            "use fewer keys, shorten transactions.key_retention_ms, or raise transactions.keys_bytes_max",
            share=KEYS_SHARE,
        )
        # Times at which there may be room again, by client; "" for all clients.
        self._name_due_ms: dict[str, int] = {}
        self._key_due_ms: dict[str, int] = {}

    def check_new(self, name: str, client: str, wall_ms: int, sweep_in_ms: int) -> None:
        """Raise ``QuotaExceeded`` or ``Overloaded`` if the client may not add another id or sink."""
        used, more = self._state.used, self._state.growth(name, None, _NEW)
        if not self._names.has_room(used, client, more):
            whose = "" if self._names.is_in_share(used, client, more) else client
            retry_after_ms = max(sweep_in_ms, self._name_due(whose, wall_ms) - wall_ms)
            if self._names.has_room(used, client, more - self._bytes_of_open(whose)):
                retry_after_ms = min(retry_after_ms, RECHECK_MS)
            self._names.check(used, "client", client, more, retry_after_ms)

    def check_parts(
        self,
        name: str,
        before: Transaction | Sink | None,
        after: Transaction | Sink,
        retry_after_ms: int,
        ending: Iterable[tuple[str, Transaction]] = (),
    ) -> None:
        """Raise ``QuotaExceeded`` or ``Overloaded`` if there is no room for the growth of a row.

        The growth may use the room that the transactions in ``ending`` will free.
        """
        more = self._state.growth(name, before, after)
        if more > 0:
            more -= sum(self._state.growth(each, _NEW, found) for each, found in ending)
        retry_after_ms = max(1, min(retry_after_ms, RECHECK_MS))
        self._parts.check(self._state.used, "client", after.client, more, retry_after_ms)

    def has_for_key(self, client: str) -> bool:
        """Whether the client may add another keyed request."""
        return self._keys.has_room(self._state.keys, client, KEY_BYTES)

    def check_key(self, client: str, wall_ms: int) -> None:
        """Raise ``QuotaExceeded`` or ``Overloaded`` if the client may not add another keyed request."""
        retry_after_ms = self.key_due(client, wall_ms) - wall_ms
        self._keys.check(self._state.keys, "client", client, KEY_BYTES, retry_after_ms)

    def key_due(self, client: str, wall_ms: int) -> int:
        """The time at which the oldest keyed request that takes the client's room expires.

        At least ``LOOK_MS`` from now.
        """
        whose = "" if self._keys.is_in_share(self._state.keys, client, KEY_BYTES) else client
        if whose not in self._key_due_ms:
            oldest_ms = keyed_requests.oldest_ms(self._state, whose)
            due_ms = self._key_retention_ms + (wall_ms if oldest_ms is None else oldest_ms)
            self._key_due_ms[whose] = max(due_ms, wall_ms + LOOK_MS)
        return self._key_due_ms[whose]

    def expired(self) -> None:
        """Forget the known times of expiry, because old rows were deleted."""
        self._key_due_ms.clear()
        self._name_due_ms.clear()

    def _bytes_of_open(self, client: str) -> int:
        """The minimum bytes that the ends of open transactions free, of one client or ("") of all clients."""
        parts = self._state.open_parts
        return PARTITION_BYTES * (parts.of(client) if client else parts.total)

    def _name_due(self, client: str, wall_ms: int) -> int:
        if client not in self._name_due_ms:
            oldest_ms = self._state.unused_since(client)
            self._name_due_ms[client] = (wall_ms if oldest_ms is None else oldest_ms) + self._id_retention_ms
        return self._name_due_ms[client]
