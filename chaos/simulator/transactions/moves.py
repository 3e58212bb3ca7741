"""How the records of one transaction may follow one another (T1, T7).

Decides: which step from one record of a transactional id to the next is none. It is written without code of
``transactions.decisions``. Leaves to others: outcomes and markers (``decided``), batches (``sink_log``).
"""

from __future__ import annotations

from typing import Final

from transactions.records import State, Transaction

_EMPTY, _ONGOING, _PREPARED, _COMPLETE = State.EMPTY, State.ONGOING, State.PREPARED, State.COMPLETE
ENDING: Final = (State.PREPARE_COMMIT, State.PREPARE_ABORT)
OPEN: Final = (_ONGOING, _PREPARED)
_WITHIN: Final = {  # one epoch
    _EMPTY: {_ONGOING, _PREPARED},
    _COMPLETE: {_ONGOING, _PREPARED},
    _ONGOING: {_ONGOING, _PREPARED, *ENDING},
    _PREPARED: set(ENDING),
    State.PREPARE_COMMIT: set[State](),
    State.PREPARE_ABORT: set[State](),
}
_FIXED: Final = ("timeout_ms", "run_epoch", "request", "last", "client")  # of one transaction


def problem_of(before: Transaction | None, after: Transaction) -> str | None:
    """What is wrong with a record that follows another of its transactional id; None if nothing is."""
    if before is None:
        return None
    if before.producer_id != after.producer_id or before.epoch != after.epoch:
        return _problem_of_next(before, after)
    if after.state not in _WITHIN[before.state]:
        return f"{before.state} is followed by {after.state}"
    for name in (*_FIXED, *(("began_ms",) if before.began_ms else ())):
        if getattr(before, name) != getattr(after, name):
            return f"{name} was {getattr(before, name)!r}, and is {getattr(after, name)!r}"
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
    if before.producer_id == after.producer_id and after.epoch != before.epoch + 1:
        return f"epoch {after.epoch} follows {before.epoch}"
    if before.state in ENDING and after.state is not _COMPLETE:
        return f"{before.state} is followed by {after.state} of the next epoch"
    if after.state is _COMPLETE and (after.partitions or after.groups):
        return f"{after.partitions} and {after.groups} take part in a transaction that has not begun"
    return None
