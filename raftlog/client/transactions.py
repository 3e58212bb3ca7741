"""Transactions as operators and sinks see them. Results are the bodies of the HTTP contract."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from raftlog.errors import CommitUnknown, RaftlogError
from raftlog.wire import transactions as wire
from raftlog.wire.bodies import Request
from raftlog.wire.operation import Operation

if TYPE_CHECKING:
    from raftlog.client.session import Session


class AsyncTransactions:
    """The transactions of the cluster. A transaction is named by its id or by its transactional id."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def list(self, *, open_only: bool = True) -> list[wire.TransactionDescription]:
        """The incomplete transactions, or the newest of each transactional id; by transactional id."""
        return await self._session.all_items(wire.LIST, query={"state": "open" if open_only else "all"})

    async def describe(self, transaction: str) -> wire.TransactionDescription:
        """One transaction, or the newest one of a transactional id. Raises ``TransactionNotFound``."""
        return await self._session.call(wire.DESCRIBE, transaction=transaction)

    async def abort(self, transactional_id: str) -> wire.TransactionDescription:
        """Abort whatever a transactional id has open, prepared transactions too; returns the newest one.

        Nothing happens if none is open. An unknown outcome is raised, not retried: a repetition could abort
        the next transaction. Raises ``TransactionNotFound``.
        """
        path = wire.ABORT.at(transaction=transactional_id)
        reply = await self._session.ask_any(wire.ABORT.method, path, may_repeat=False)
        return reply.read(wire.TransactionDescription)

    async def begin_run(
        self, sink_key: str, *, owner: str, run: str, sequence: int, takeover: bool = False
    ) -> wire.BegunRun:
        """Register ``run``, one start of ``owner``, before it writes the batch ``sequence`` of a sink.

        It gets a ``run_epoch``, fences the runs before, and aborts what they have open. If the batch is
        ``committed`` nothing changes. Without ``takeover`` another owner gets ``Conflict`` with
        ``error.details["owner"]``, a gap one with ``expected_sequence``; a batch before the newest one gets
        ``newest_sequence``. Raises ``ProducerFenced`` for a run that is over.
        """
        body = wire.BeginRun(sink_key, owner, run, sequence, takeover)
        return await self._session.call(wire.BEGIN_RUN, body)

    async def commit_batch(
        self,
        sink_key: str,
        sequence: int,
        transactions: Sequence[str],
        *,
        run: str | None = None,
        run_epoch: int | None = None,
    ) -> None:
        """Commit prepared transactions of a sink together, once for each ``sequence``: all of them, or none.

        ``transactions`` are ids that ``prepare`` has returned; they begin with ``sink_key`` and ``~``. After
        ``CommitUnknown`` call it again with the same arguments. Raises ``Conflict`` for an earlier sequence,
        and for one that was committed with other transactions: ``error.details["newest_sequence"]`` is the
        newest of the sink.

        With a ``run`` and its epoch, of ``begin_run``, the sequence rises by one, ``transactions`` may be
        empty, and whatever else the sink has open is aborted. Raises ``ProducerFenced`` once a newer run has
        begun.
        """
        body = wire.CommitBatch(sink_key, sequence, [*transactions], run, run_epoch)
        await self._end_batch(wire.COMMIT_BATCH, body)

    async def abort_batch(
        self, sink_key: str, transactions: Sequence[str], *, run_epoch: int | None = None
    ) -> None:
        """Abort prepared transactions of a sink. Raises ``Conflict`` if one of them is committed.

        With the ``run_epoch`` of a run, all else that it has open, too; ``transactions`` may then be empty.
        After ``CommitUnknown`` call it again.
        """
        await self._end_batch(wire.ABORT_BATCH, wire.AbortBatch(sink_key, [*transactions], run_epoch))

    async def _end_batch(self, operation: Operation[wire.EndedBatch], body: Request) -> None:
        try:
            await self._session.call(operation, body)
        except RaftlogError as error:
            if not error.retryable:
                raise
            raise CommitUnknown(
                f"no broker has said whether the batch has ended: {error}; call this again with the same "
                "arguments"
            ) from error
