"""Administers transactions, and the runs and batches of sinks. Calls return bodies of the HTTP contract."""

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
        """Return the incomplete transactions, sorted by transactional id.

        Without ``open_only``, return the newest transaction of each transactional id.
        """
        return await self._session.all_items(wire.LIST, query={"state": "open" if open_only else "all"})

    async def describe(self, transaction: str) -> wire.TransactionDescription:
        """Return one transaction, or the newest transaction of a transactional id.

        Raises ``TransactionNotFound``.
        """
        return await self._session.call(wire.DESCRIBE, transaction=transaction)

    async def abort(self, transactional_id: str) -> wire.TransactionDescription:
        """Abort open and prepared transactions of a transactional id; return its newest transaction.

        Changes nothing if no transaction is open or prepared. After an unknown outcome the request is not
        retried, and the error is raised: a repetition could abort the next transaction. Raises
        ``TransactionNotFound``.
        """
        path = wire.ABORT.at(transaction=transactional_id)
        reply = await self._session.ask_any(wire.ABORT.method, path, may_repeat=False)
        return reply.read(wire.TransactionDescription)

    async def begin_run(
        self, sink_key: str, *, owner: str, run: str, sequence: int, takeover: bool = False
    ) -> wire.BegunRun:
        """Register ``run``, one start of ``owner``, before this run writes the batch ``sequence`` of a sink.

        The run gets a ``run_epoch``, fences all earlier runs, and aborts their open transactions. If the
        result says ``committed``, the batch was committed before, and nothing changes. Raises ``Conflict``
        for another owner without ``takeover`` (see ``error.details["owner"]``), for a gap
        (``expected_sequence``), and for a batch before the newest one (``newest_sequence``). Raises
        ``ProducerFenced`` for a run that has been replaced.
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
        """Commit prepared transactions of a sink together, once for each ``sequence``: all of them or none.

        ``transactions`` are ids that ``prepare`` has returned. Each id begins with ``sink_key`` and ``~``.
        After ``CommitUnknown`` repeat the call with the same arguments. Raises ``Conflict`` for an earlier
        sequence, and for a sequence that was committed with other transactions:
        ``error.details["newest_sequence"]`` is the newest sequence of the sink.

        With a ``run`` and its epoch from ``begin_run``, the sequence must rise by one, ``transactions`` may
        be empty, and all other open transactions of the sink are aborted. Raises ``ProducerFenced`` once a
        newer run has begun.
        """
        body = wire.CommitBatch(sink_key, sequence, [*transactions], run, run_epoch)
        await self._end_batch(wire.COMMIT_BATCH, body)

    async def abort_batch(
        self, sink_key: str, transactions: Sequence[str], *, run_epoch: int | None = None
    ) -> None:
        """Abort prepared transactions of a sink. Raises ``Conflict`` if one of them is committed.

        With the ``run_epoch`` of a run, all other open transactions of the run are aborted, too;
        ``transactions`` may then be empty. After ``CommitUnknown`` repeat the call.
        """
        await self._end_batch(wire.ABORT_BATCH, wire.AbortBatch(sink_key, [*transactions], run_epoch))

    async def _end_batch(self, operation: Operation[wire.EndedBatch], body: Request) -> None:
        try:
            await self._session.call(operation, body)
        except RaftlogError as error:
            if not error.retryable:
                raise
            raise CommitUnknown(
                f"no broker has answered whether the batch has ended: {error}; repeat the call with the same "
                "arguments"
            ) from error
