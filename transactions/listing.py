"""Pages of transactions, each of which may have a thousand partitions and a hundred groups.

Decides: where a page ends, so that memory and time of a list are bounded. Leaves to others: the transactions
(``state``), and which coordinators to ask (``service``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import nsmallest
from typing import Final, NamedTuple

from transactions.records import Transaction
from transactions.requests import Listed

PARTS_MAX: Final = 20_000  # partitions and groups in one page, unless its only transaction has more


class Page(NamedTuple):
    """Transactions by transactional id, sorted, and whether further transactions follow the page."""

    transactions: dict[str, Transaction]
    has_more: bool  # whether there are later transactions; unknown (False) for a page with ``count_max``


def page_of(rows: Iterable[tuple[str, Transaction]]) -> Page:
    """Make a page of the first ``rows``, as many as the limit of partitions and groups allows."""
    found, parts = dict[str, Transaction](), 0
    for name, one in rows:
        parts += len(one.partitions) + len(one.groups)
        if found and parts > PARTS_MAX:
            return Page(found, has_more=True)
        found[name] = one
    return Page(found, has_more=False)


def merged(replies: Sequence[Listed], after: str, count_max: int) -> Page:
    """Merge the pages of all coordinators into one page: up to ``count_max`` transactions after an id.

    The page ends where the first incomplete page of a coordinator ends, since later ids of that coordinator
    are unknown.
    """
    found = {name: one for reply in replies for name, one in reply.transactions.items() if name > after}
    end = min((max(reply.transactions) for reply in replies if reply.has_more), default=None)
    names = nsmallest(count_max, (name for name in found if end is None or name <= end))
    page = page_of((name, found[name]) for name in names)
    return Page(page.transactions, page.has_more or end is not None)
