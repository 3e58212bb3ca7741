"""Transactions as operators see them. Results are the bodies of the HTTP contract."""

from __future__ import annotations

from urllib.parse import quote

from raftlog.client.session import Session
from raftlog.wire import paths
from raftlog.wire import transactions as wire


class AsyncTransactions:
    """The transactions of the cluster. A transaction is named by its id or by its transactional id."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def list(self, *, open_only: bool = True) -> list[wire.TransactionBody]:
        """Those that are not complete, or the newest of each transactional id; by transactional id."""
        found: list[wire.TransactionBody] = []
        first = f"{paths.TRANSACTIONS}?state={'open' if open_only else 'all'}"
        path = first
        while True:
            page = (await self._session.ask_any("GET", path)).read(wire.TransactionList)
            found += page.items
            if page.next_page_token is None:
                return found
            path = f"{first}&page_token={quote(page.next_page_token, safe='')}"

    async def describe(self, transaction: str) -> wire.TransactionBody:
        """One transaction, or the newest one of a transactional id. Raises ``UnknownTransaction``."""
        path = paths.of_transaction(paths.TRANSACTION, transaction)
        return (await self._session.ask_any("GET", path)).read(wire.TransactionBody)

    async def abort(self, transactional_id: str) -> wire.TransactionBody:
        """Abort whatever a transactional id has open, prepared transactions too; returns the newest one.

        Nothing happens if none is open. Raises ``UnknownTransaction``.
        """
        path = paths.of_transaction(paths.TRANSACTION_ABORT, transactional_id)
        return (await self._session.ask_any("POST", path)).read(wire.TransactionBody)
