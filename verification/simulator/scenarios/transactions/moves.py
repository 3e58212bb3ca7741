"""Checks the sequence of the records of one transactional id (T1, T7).

Decides: which step from one record to the next is not permitted. The rules use no code of
``transactions.decisions``. Leaves to others: outcomes and markers (``decided``), batches (``sink_log``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from transactions.records import EPOCH_LAST, Outcome, State, Transaction

_EMPTY, _ONGOING, _PREPARED, _COMPLETE = State.EMPTY, State.ONGOING, State.PREPARED, State.COMPLETE
ENDING: Final = (State.PREPARE_COMMIT, State.PREPARE_ABORT)
OPEN: Final = (_ONGOING, _PREPARED)
INCARNATIONS_MAX: Final = 4
_WITHIN: Final = {  # one epoch
    _EMPTY: {_ONGOING, _PREPARED},
    _COMPLETE: {_ONGOING, _PREPARED},
    _ONGOING: {_ONGOING, _PREPARED, *ENDING},
    _PREPARED: set(ENDING),
    State.PREPARE_COMMIT: set[State](),
    State.PREPARE_ABORT: set[State](),
}
_FIXED: Final = ("timeout_ms", "run_epoch", "request", "last", "incarnations")  # of one transaction


def problem_of(before: Transaction | None, after: Transaction) -> str | None:
    """Describe the error in a record that follows another record of its transactional id; None if the step is
    permitted.
    """
    if (after.state in OPEN) != bool(after.began_ms) and after.changed_ms and after.state not in ENDING:
        return f"it is {after.state}, and has begun at {after.began_ms}"
    if before is None:
        return None
    if before.client != after.client:
        return f"it belongs to {after.client!r}, and belonged to {before.client!r}"
    if before.producer_id != after.producer_id or before.epoch != after.epoch:
        return _problem_of_next(before, after)
    if after.state not in _WITHIN[before.state]:
        return f"{before.state} is followed by {after.state}"
    if problem := _problem_of_kept(before, after, (*_FIXED, *(("began_ms",) if before.began_ms else ()))):
        return problem
    was, now = ({*one.partitions, *one.groups} for one in (before, after))
    if not was <= now:
        return f"{was - now} takes part no more"
    joins = after.state is _ONGOING
    if was != now and not joins:
        return f"{now - was} joins a transaction that is {after.state}"
    return None


def _problem_of_next(before: Transaction, after: Transaction) -> str | None:
    if before.state in OPEN:
        return f"it is {before.state}, and another transaction follows"
    expected = (
        (after.producer_id, 0) if before.epoch >= EPOCH_LAST else (before.producer_id, before.epoch + 1)
    )
    is_completed = after.state is _COMPLETE
    if (after.producer_id, after.epoch) != expected and not is_completed:
        return f"{after.producer_id}.{after.epoch} follows {before.producer_id}.{before.epoch}"
    if before.state in ENDING and not is_completed:
        return f"{before.state} is followed by {after.state} of the next epoch"
    return _problem_of_completed(before, after) if is_completed else _problem_of_opened(before, after)


def _problem_of_completed(before: Transaction, after: Transaction) -> str | None:
    if after.partitions or after.groups or after.request:
        return f"{after} has not begun"
    if (after.producer_id, after.epoch) != (before.producer_id, before.epoch + 1):
        return f"{after.producer_id}.{after.epoch} follows {before.producer_id}.{before.epoch}"
    last = Outcome(before.producer_id, before.epoch, before.state is State.PREPARE_COMMIT)
    if after.last != last and (before.state in ENDING or after.last != replace(last, is_committed=True)):
        return f"its last outcome is {after.last} in place of {last}"
    return _problem_of_kept(before, after, ("timeout_ms", "run_epoch", "incarnations"))


def _problem_of_opened(before: Transaction, after: Transaction) -> str | None:
    added = after.incarnations[len(after.incarnations) - 1 :]
    named = (*before.incarnations, *added)[-INCARNATIONS_MAX:]
    if after.incarnations and after.incarnations != named:
        return f"{after.incarnations} were {before.incarnations}"
    return _problem_of_kept(before, after, ("last",))


def _problem_of_kept(before: Transaction, after: Transaction, names: Iterable[str]) -> str | None:
    for name in names:
        if getattr(before, name) != getattr(after, name):
            return f"{name} was {getattr(before, name)!r}, and is {getattr(after, name)!r}"
    return None
