"""Runs of drivers: decides which run may write into a sink and commit its next batch.

Decides: the owner of a sink, the epoch of each run, and the sink's row after a batch. No IO. Leaves to
others: the transactions of the batch (``batches``).

A run is one start of a driver, such as a Spark query. A run registers before it writes, and gets an epoch
above the epochs of all earlier runs. From then on all requests with a lower epoch are refused: openings of
transactions, preparations, batches. A run registers with its first batch. If that batch is already committed,
the run has no batch to write, and fences no other run: it may be an old run that was paused, or use an old
checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from raftlog.errors import Conflict, InvalidRequest, ProducerFenced
from transactions.batches import KEY_END, check_repeated
from transactions.records import Sink
from transactions.requests import AbortBatch, BeginRun, CommitBatch, RunBegun

RETIRED_MAX: Final = 64  # remembered earlier runs, which cannot register again


def check_request(ask: CommitBatch | AbortBatch) -> None:
    """Raise ``InvalidRequest`` if only one of run and run epoch is given, or an empty batch has no run."""
    if isinstance(ask, CommitBatch) and bool(ask.run) != bool(ask.run_epoch):
        raise InvalidRequest(
            "run_epoch: run and run_epoch belong together; send both, or neither", field="run_epoch"
        )
    if not ask.handles and not ask.run_epoch:
        raise InvalidRequest(
            "transactions is empty; send at least one, as only the batch of a run may be empty",
            field="transactions",
        )


def registered(ask: BeginRun, before: Sink | None, wall_ms: int) -> Sink | None:
    """The sink with this run as its newest run; None if the sink stays unchanged.

    Raises ``ProducerFenced`` for an earlier run, ``Conflict`` for another owner, and for a batch below the
    newest batch or after a gap.
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
    """Make the reply to the registration of a run. A run without a batch to write may have epoch 0."""
    epoch = sink.epoch if sink.run == ask.run else 0
    return RunBegun(epoch=epoch, is_committed=is_committed(ask, sink))


def is_committed(ask: BeginRun, before: Sink) -> bool:
    """Whether the owner in ``ask`` has already committed this batch, or a later batch."""
    return ask.owner == _owner_of_newest(before, ask.owner) and ask.sequence <= before.sequence


def check_epoch(transactional_id: str, run_epoch: int, sinks: Mapping[str, Sink]) -> None:
    """Raise ``ProducerFenced`` for a transaction of an earlier run.

    A transaction without a run is allowed.
    """
    if not run_epoch:
        return
    key = transactional_id.partition(KEY_END)[0]
    sink = sinks.get(key)
    if sink is None or sink.epoch != run_epoch:
        raise _unknown(f"run {run_epoch}", key) if sink is None else _over(f"run {run_epoch}", key, sink)


def check_driver(ask: CommitBatch, before: Sink | None) -> None:
    """Raise ``ProducerFenced`` unless the batch is from the newest run, or the sink has no runs."""
    if before is None or not before.owner:
        if ask.run:
            raise _unknown(ask.run, ask.key)
    elif (ask.run, ask.run_epoch) != (before.run, before.epoch):
        raise _over(ask.run or "a driver without a run", ask.key, before)


def is_new_batch(ask: CommitBatch, before: Sink | None) -> bool:
    """Whether this batch is new and must be committed. Raises ``Conflict`` for a batch after a gap."""
    if before is None or before.owner_before:
        return True
    if before.owner and ask.sequence > before.sequence + 1:
        raise _gap(ask, before)
    return ask.sequence > before.sequence


def after(ask: CommitBatch, before: Sink | None, wall_ms: int) -> Sink:
    """The sink with this batch as its newest batch."""
    handles = tuple(sorted(ask.handles))
    if before is None:
        return Sink(sequence=ask.sequence, handles=handles, changed_ms=wall_ms, client=ask.client)
    return msgspec.structs.replace(
        before, sequence=ask.sequence, handles=handles, changed_ms=wall_ms, owner_before=""
    )


def _skipped(ask: BeginRun, before: Sink) -> Sink | None:
    """The sink after it skips batches that the run does not have; None if there is no gap.

    A sink without an owner may have skipped empty batches. Raises ``Conflict`` if the run may not skip
    batches.
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
    """The owner that committed the newest batch. Batches of different owners are numbered separately."""
    return before.owner_before or before.owner or otherwise


def _retired(before: Sink) -> tuple[str, ...]:
    return (*before.retired, before.run)[-RETIRED_MAX:]


def _over(run: str, key: str, newest: Sink) -> ProducerFenced:
    return ProducerFenced(
        f"run: {run} of sink {key!r} is fenced; the newest run is {newest.run} with epoch {newest.epoch}: "
        "stop the fenced run",
        current_epoch=newest.epoch,
    )


def _unknown(run: str, key: str) -> ProducerFenced:
    return ProducerFenced(
        f"run: {run} of sink {key!r} is not registered, or has expired; begin the run again"
    )


def _gap(ask: BeginRun | CommitBatch, before: Sink) -> Conflict:
    return Conflict(
        f"sequence: {ask.sequence} of sink {ask.key!r} does not follow {before.sequence}; first commit the "
        "batches between, or take the sink over without them",
        expected_sequence=before.sequence + 1,
    )
