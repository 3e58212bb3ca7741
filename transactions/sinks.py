"""Which driver may commit the next batch of a sink: its owner, and the newest run of this owner.

Decides: what a batch makes of its sink. No IO. Leaves to others: the handles of the batch (``batches``).

A run is one start of a driver. The first batch of a new run retires the run before, whatever becomes of the
batch; a retired run commits nothing any more. Without it a driver that was paused could commit after its
successor.
"""

from __future__ import annotations

from typing import Final

import msgspec

from raftlog.errors import Conflict, InvalidRequest, ProducerFenced
from transactions.records import Sink
from transactions.requests import CommitBatch

RETIRED_MAX: Final = 64  # runs that are remembered


def check_request(ask: CommitBatch) -> None:
    """Raise ``InvalidRequest`` for half a driver, and for an empty batch without one."""
    if bool(ask.owner) != bool(ask.run):
        raise InvalidRequest("run: owner and run belong together; give both, or neither", field="run")
    if not ask.handles and not ask.run:
        raise InvalidRequest(
            "transactions: there is none; only a batch with an owner may be empty", field="transactions"
        )


def check_driver(ask: CommitBatch, before: Sink | None) -> None:
    """Raise ``Conflict`` for another owner, ``ProducerFenced`` for a run that is over."""
    if before is None or not before.owner:
        return
    if ask.run in before.retired or not ask.run:
        raise ProducerFenced(
            f"run: {ask.run or 'a driver without a run'} of sink {ask.key!r} is over, a newer one has "
            f"committed: {before.run}; stop this one"
        )
    if ask.owner != before.owner and not ask.is_takeover:
        raise Conflict(
            f"owner: sink {ask.key!r} belongs to {before.owner}, not to {ask.owner}; use another key, or "
            "take it over if the owner has ended",
            owner=before.owner,
        )


def is_new_batch(ask: CommitBatch, before: Sink | None) -> bool:
    """Whether this batch is to be committed now. Raises ``Conflict`` for one behind a gap."""
    if before is None or ask.sequence > before.sequence:
        if before is not None and before.owner and ask.sequence > before.sequence + 1 and not ask.is_takeover:
            raise Conflict(
                f"sequence: {ask.sequence} of sink {ask.key!r} does not follow {before.sequence}; batches "
                "between are missing. Commit them first, or take the sink over without them",
                expected_sequence=before.sequence + 1,
            )
        return True
    return _changes_owner(ask, before)


def after(ask: CommitBatch, before: Sink | None, wall_ms: int) -> Sink:
    """The sink with this batch as its newest."""
    return Sink(
        sequence=ask.sequence,
        handles=tuple(sorted(ask.handles)),
        changed_ms=wall_ms,
        owner=ask.owner,
        run=ask.run,
        retired=_retired(ask, before),
    )


def with_run(ask: CommitBatch, before: Sink) -> Sink | None:
    """The sink whose newest batch a new run repeats; None where nothing changes.

    A run that is further behind changes nothing: its checkpoint is an old copy.
    """
    if ask.run == before.run or ask.sequence < before.sequence:
        return None
    return msgspec.structs.replace(before, owner=ask.owner, run=ask.run, retired=_retired(ask, before))


def _changes_owner(ask: CommitBatch, before: Sink) -> bool:
    """Another owner counts from another number, its own."""
    return bool(before.owner) and ask.owner != before.owner


def _retired(ask: CommitBatch, before: Sink | None) -> tuple[str, ...]:
    if before is None or not before.run or before.run == ask.run:
        return () if before is None else before.retired
    return (*before.retired, before.run)[-RETIRED_MAX:]
