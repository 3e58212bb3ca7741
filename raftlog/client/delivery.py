"""The option ``delivery``: which settings of producers and consumers it selects, and which contradict it.

============================  =======================  ==========================  =======================
what is set                   ``at_most_once``         ``at_least_once``           ``exactly_once``
============================  =======================  ==========================  =======================
producer: acks                0                        quorum, or more             quorum, or more
producer: repeats             never                    until delivery_timeout      until delivery_timeout
producer: repetitions         none                     stored once (idempotent)    stored once (idempotent)
producer: transactions        none                     none                        all, by transactional_id
consumer: offset committed    before each record       after each record           with the batch's output
============================  =======================  ==========================  =======================
"""

from __future__ import annotations

import enum
from typing import Final


class Delivery(enum.StrEnum):
    """The guarantee for a record: delivered at most, at least, or exactly once.

    Options also accept the texts.
    """

    AT_LEAST_ONCE = "at_least_once"
    AT_MOST_ONCE = "at_most_once"
    EXACTLY_ONCE = "exactly_once"


_WEAK: Final = ("0", "1")  # acks after which a stored record may be lost


def checked(delivery: str) -> Delivery:
    """The delivery of this name. Raises ``ValueError`` that names the choices."""
    if delivery not in [*Delivery]:
        raise ValueError(f"delivery is {delivery!r}; choose {', '.join(repr(str(one)) for one in Delivery)}")
    return Delivery(delivery)


def of_producer(
    delivery: str | None, acks: str | None, idempotent: bool | None, transactional_id: str | None
) -> tuple[str, bool]:
    """Return ``acks`` and ``idempotent`` with None replaced. Raises ``ValueError`` for a contradiction.

    Without a ``delivery`` no contradiction is checked here, and the default of ``acks`` is ``quorum``.
    """
    if delivery is not None:
        _check_producer(checked(delivery), acks, idempotent, transactional_id)
    acks = acks or ("0" if delivery == Delivery.AT_MOST_ONCE else "quorum")
    return acks, acks != "0" and idempotent is not False


def _check_producer(
    delivery: Delivery, acks: str | None, idempotent: bool | None, transactional_id: str | None
) -> None:
    says, is_transactional = f"delivery is {str(delivery)!r}", delivery is Delivery.EXACTLY_ONCE
    if delivery is Delivery.AT_MOST_ONCE:
        if acks not in (None, "0"):
            raise ValueError(f"{says} and acks {acks!r}: such records are not acknowledged; leave acks out")
        if idempotent:
            raise ValueError(f"{says} and idempotent: such records are not repeated; leave idempotent out")
    elif acks in _WEAK:
        raise ValueError(f"{says} and acks {acks!r}: a record could be lost; use 'quorum' or more")
    if is_transactional and idempotent is False:
        raise ValueError(f"{says} and idempotent is False; leave idempotent out")
    if is_transactional and transactional_id is None:
        raise ValueError(
            f"{says}: it sends in transactions, which need a transactional_id, such as 'copy-1', that a "
            "restart uses again"
        )
    if not is_transactional and transactional_id is not None:
        raise ValueError(f"{says} and transactional_id {transactional_id!r}; choose 'exactly_once'")
