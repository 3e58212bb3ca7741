"""Lists of transactions with many partitions, in pages."""

from __future__ import annotations

from transactions import listing
from transactions.listing import merged, page_of
from transactions.records import State, Transaction
from transactions.requests import Listed

WIDE = Transaction(
    producer_id=1,
    epoch=0,
    state=State.ONGOING,
    partitions=tuple(("orders", number) for number in range(1_000)),
)
NAMES = [f"copy-{number:02d}" for number in range(60)]


def reply(after: str, *names: str) -> Listed:
    """Return the answer of a coordinator that has these transactions."""
    page = page_of((name, WIDE) for name in names if name > after)
    return Listed(transactions=page.transactions, has_more=page.has_more)


# requirement: N2
def test_a_coordinator_lists_as_many_partitions_as_a_page_has_room_for() -> None:
    page = page_of((name, WIDE) for name in NAMES)
    assert len(page.transactions) == listing.PARTS_MAX // 1_000
    assert page.has_more
    assert page_of([(NAMES[0], WIDE)] * 2) == ({NAMES[0]: WIDE}, False)


def test_a_transaction_that_is_larger_than_a_page_has_one_of_its_own() -> None:
    larger = Transaction(producer_id=1, epoch=0, state=State.ONGOING, partitions=WIDE.partitions * 21)
    assert page_of([("a", larger), ("b", WIDE)]) == ({"a": larger}, True)


def test_pages_of_several_coordinators_have_each_transaction_once_and_in_order() -> None:
    found, after = list[str](), ""
    while True:
        replies = [reply(after, *NAMES[:45:2]), reply(after, *NAMES[1:45:2]), reply(after, *NAMES[45:])]
        page = merged(replies, after, 1_001)
        assert sum(len(one.partitions) for one in page.transactions.values()) <= listing.PARTS_MAX
        found += page.transactions
        if not page.has_more:
            break
        after = found[-1]
    assert found == NAMES
