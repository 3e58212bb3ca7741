"""Pages of transactions, of which each may have a thousand partitions and a hundred groups.

Decides: where a page ends, so that a list takes the memory and the time of what it returns, and that has a
bound. Leaves to others: which transactions there are (``state``), and whom to ask (``service``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import nsmallest
from typing import Final, NamedTuple

from transactions.records import Transaction
from transactions.requests import Listed

PARTS_MAX: Final = 20_000  # partitions and groups in one page, unless its only transaction has more


class Page(NamedTuple):
    """Transactions in the order of their ids."""

    transactions: dict[str, Transaction]
    has_more: bool  # behind the last one, which a full page does not know


def page_of(rows: Iterable[tuple[str, Transaction]]) -> Page:
    """Return the first rows, as many as a page has room for."""
    found, parts = dict[str, Transaction](), 0
    for name, one in rows:
        parts += len(one.partitions) + len(one.groups)
        if found and parts > PARTS_MAX:
            return Page(found, has_more=True)
        found[name] = one
    return Page(found, has_more=False)


def merged(replies: Sequence[Listed], after: str, count_max: int) -> Page:
    """Merge the pages of all coordinators into one: up to ``count_max`` transactions behind an id.

    It ends where the first coordinator's page ends: what that one has behind it is not known.
    """
    found = {name: one for reply in replies for name, one in reply.transactions.items() if name > after}
    end = min((max(reply.transactions) for reply in replies if reply.has_more), default=None)
    names = nsmallest(count_max, (name for name in found if end is None or name <= end))
    page = page_of((name, found[name]) for name in names)
    return Page(page.transactions, page.has_more or end is not None)
