"""Which run of which driver may write into a sink and commit its next batch.

Decides: who owns a sink, the epoch of each run, and what a batch makes of its sink. No IO. Leaves to others:
the transactions of the batch (``batches``).

A run is one start of a driver, such as a query of Spark. It registers before it writes, and gets an epoch
above those of all runs before. What carries a lower epoch is refused from then on, whatever arrives when: the
opening of a transaction, its preparation, its batch. A run registers with the batch that it begins. One whose
batch is committed has nothing to write, and fences nobody: it may be an old run that was paused, or have an
old copy of a checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from raftlog.errors import Conflict, InvalidRequest, ProducerFenced
from transactions.batches import KEY_END, check_repeated
from transactions.records import Sink
from transactions.requests import AbortBatch, BeginRun, CommitBatch, RunBegun

RETIRED_MAX: Final = 64  # runs that are remembered, so that they cannot register again


def check_request(ask: CommitBatch | AbortBatch) -> None:
    """Raise ``InvalidRequest`` for half a run, and for no transactions without a run."""
    if isinstance(ask, CommitBatch) and bool(ask.run) != bool(ask.run_epoch):
        raise InvalidRequest(
            "run_epoch: run and run_epoch belong together; give both, or neither", field="run_epoch"
        )
    if not ask.handles and not ask.run_epoch:
        raise InvalidRequest(
            "transactions: there is none; only the batch of a run may be empty", field="transactions"
        )


def registered(ask: BeginRun, before: Sink | None, wall_ms: int) -> Sink | None:
    """The sink with this run as its newest; None where nothing changes.

    Raises ``ProducerFenced`` for a run that is over, ``Conflict`` for another owner, and for a batch that is
    before the newest one or behind a gap.
    """
    if before is None:
        return Sink(
            client=ask.client,
            sequence=ask.sequence - 1,
            handles=(),
            changed_ms=wall_ms,
            owner=ask.owner,
            run=ask.run,
            epoch=1,
        )
    if ask.run in before.retired:
        raise _over(ask.run, ask.key, before)
    if before.owner and ask.owner != before.owner and not ask.is_takeover:
        raise Conflict(
            f"owner: sink {ask.key!r} belongs to {before.owner}, not to {ask.owner}; use another key, or "
            "take it over if the owner has ended",
            owner=before.owner,
        )
    if is_committed(ask, before):
        check_repeated(ask.key, ask.sequence, before.handles, before)
        return None
    skipped = _skipped(ask, before)
    if skipped is None and ask.run == before.run:
        return None
    return _with_run(ask, skipped or before, wall_ms)


def begun(ask: BeginRun, sink: Sink) -> RunBegun:
    """The reply to a run; one that has nothing to write may have no epoch."""
    epoch = sink.epoch if sink.run == ask.run else 0
    return RunBegun(epoch=epoch, is_committed=is_committed(ask, sink))


def is_committed(ask: BeginRun, before: Sink) -> bool:
    """Whether this owner has committed this batch, or one behind it."""
    return ask.owner == _owner_of_newest(before, ask.owner) and ask.sequence <= before.sequence


def check_epoch(transactional_id: str, run_epoch: int, sinks: Mapping[str, Sink]) -> None:
    """Raise ``ProducerFenced`` if the transaction is of a run that is over. One without a run has no rule."""
    if not run_epoch:
        return
    key = transactional_id.partition(KEY_END)[0]
    sink = sinks.get(key)
    if sink is None or sink.epoch != run_epoch:
        raise _unknown(f"run {run_epoch}", key) if sink is None else _over(f"run {run_epoch}", key, sink)


def check_driver(ask: CommitBatch, before: Sink | None) -> None:
    """Raise ``ProducerFenced`` unless this is the newest run, or the sink has no runs."""
    if before is None or not before.owner:
        if ask.run:
            raise _unknown(ask.run, ask.key)
    elif (ask.run, ask.run_epoch) != (before.run, before.epoch):
        raise _over(ask.run or "a driver without a run", ask.key, before)


def is_new_batch(ask: CommitBatch, before: Sink | None) -> bool:
    """Whether this batch is to be committed now. Raises ``Conflict`` for one behind a gap."""
    if before is None or before.owner_before:
        return True
    if before.owner and ask.sequence > before.sequence + 1:
        raise _gap(ask, before)
    return ask.sequence > before.sequence


def after(ask: CommitBatch, before: Sink | None, wall_ms: int) -> Sink:
    """The sink with this batch as its newest."""
    handles = tuple(sorted(ask.handles))
    if before is None:
        return Sink(sequence=ask.sequence, handles=handles, changed_ms=wall_ms, client=ask.client)
    return msgspec.structs.replace(
        before, sequence=ask.sequence, handles=handles, changed_ms=wall_ms, owner_before=""
    )


def _skipped(ask: BeginRun, before: Sink) -> Sink | None:
    """The sink without the batches that the run does not have, where it may leave them out; None if none.

    A sink that had no owner until now may have left out batches without rows.
    """
    if ask.owner != _owner_of_newest(before, ask.owner) or ask.sequence == before.sequence + 1:
        return None
    if before.owner and not ask.is_takeover:
        raise _gap(ask, before)
    return msgspec.structs.replace(before, sequence=ask.sequence - 1, handles=())


def _with_run(ask: BeginRun, before: Sink, wall_ms: int) -> Sink:
    is_same = ask.run == before.run
    newest_of = _owner_of_newest(before, ask.owner)
    return msgspec.structs.replace(
        before,
        changed_ms=wall_ms,
        owner=ask.owner,
        run=ask.run,
        epoch=before.epoch if is_same else before.epoch + 1,
        retired=before.retired if is_same or not before.run else _retired(before),
        owner_before="" if newest_of == ask.owner else newest_of,
    )


def _owner_of_newest(before: Sink, otherwise: str) -> str:
    """The owner that committed the newest batch; batches of different owners are numbered separately."""
    return before.owner_before or before.owner or otherwise


def _retired(before: Sink) -> tuple[str, ...]:
    return (*before.retired, before.run)[-RETIRED_MAX:]


def _over(run: str, key: str, newest: Sink) -> ProducerFenced:
    return ProducerFenced(
        f"run: {run} of sink {key!r} is over, the newest is {newest.run} with epoch {newest.epoch}; stop "
        "this one",
        current_epoch=newest.epoch,
    )


def _unknown(run: str, key: str) -> ProducerFenced:
    return ProducerFenced(
        f"run: {run} of sink {key!r} is not registered, perhaps not any more; begin it again"
    )


def _gap(ask: BeginRun | CommitBatch, before: Sink) -> Conflict:
    return Conflict(
        f"sequence: {ask.sequence} of sink {ask.key!r} does not follow {before.sequence}; batches between "
        "are missing. Commit them first, or take the sink over without them",
        expected_sequence=before.sequence + 1,
    )
