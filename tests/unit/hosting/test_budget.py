"""The budget that all coordinators share, and names in order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raftlog.errors import Overloaded, QuotaExceeded
from raftlog.hosting.budget import Budget, Usage, share_owner
from raftlog.hosting.names import Names

BUDGET = Budget("bytes", 100, "use fewer")


def used(**amounts: int) -> Usage:
    found = Usage()
    for owner, amount in amounts.items():
        found.add(owner, amount)
    return found


# requirement: N2
@pytest.mark.parametrize(
    ("addresses", "owner"),
    [
        (("192.0.2.1", "::ffff:192.0.2.1", "::FFFF:c000:201"), "192.0.2.1"),
        (("2001:db8:0:7::", "2001:db8:0:7::1", "2001:0DB8:0:7:ffff:ffff:ffff:ffff"), "2001:db8:0:7::/64"),
        (("2001:db8:0:8::1",), "2001:db8:0:8::/64"),
        (("fe80::1%eth0", "fe80::2"), "fe80::/64"),
        (("::1",), "::/64"),
        (("2001:db8:0:7::/64",), "2001:db8:0:7::/64"),
        (("",), ""),
        (("/run/raftlog.sock", "a:b"), None),
    ],
)
def test_all_addresses_of_an_ipv6_network_have_one_owner(
    addresses: tuple[str, ...], owner: str | None
) -> None:
    assert [share_owner(address) for address in addresses] == [owner or address for address in addresses]


# requirement: N2
def test_an_owner_has_a_quarter() -> None:
    BUDGET.check(used(a=20), "topic", "a", 5, 7)
    with pytest.raises(
        QuotaExceeded, match="topic a has 20 bytes and asks for 6 more, but 25 are allowed; use fewer"
    ) as refused:
        BUDGET.check(used(a=20), "topic", "a", 6, 7)
    assert (refused.value.details["retry_after_ms"], refused.value.details["limit"]) == (7, 25)
    BUDGET.check(used(a=25), "topic", "b", 25, 7)


# requirement: N2
def test_all_owners_have_the_whole() -> None:
    full = used(a=25, b=25, c=25, d=20)
    BUDGET.check(full, "topic", "e", 5, 7)
    with pytest.raises(
        Overloaded, match="there are 95 bytes and the request asks for 6 more, but 100 are allowed"
    ):
        BUDGET.check(full, "topic", "e", 6, 7)


# requirement: N2
def test_an_owner_that_needs_more_than_a_quarter_has_up_to_three_quarters() -> None:
    for needed, share_max in ((10, 25), (40, 40), (80, 75)):
        budget = replace(BUDGET, share_min=needed)
        budget.check(used(), "topic", "a", share_max, 7)
        with pytest.raises(QuotaExceeded, match=f"{share_max} are allowed"):
            budget.check(used(), "topic", "a", share_max + 1, 7)


def test_who_frees_some_is_not_refused() -> None:
    BUDGET.check(used(a=500), "topic", "a", 0, 7)
    BUDGET.check(used(a=500), "topic", "a", -1, 7)


def test_an_owner_that_is_not_known_has_no_share() -> None:
    BUDGET.check(used(a=10), "topic", "", 90, 7)
    with pytest.raises(Overloaded):
        BUDGET.check(used(a=10), "topic", "", 91, 7)


def test_a_copy_is_changed_apart() -> None:
    first = used(a=10)
    second = first.copy()
    second.add("a", -10)
    assert (first.total, first.of("a"), second.total, second.of("a")) == (10, 10, 0, 0)


def test_names_are_in_order_and_come_in_pages() -> None:
    names = Names(["c", "a"])
    for name in ("d", "b", "b"):
        names.put(name, is_there=True)
    copied = names.copy()
    for name in ("c", "x"):
        names.put(name, is_there=False)
    assert [*names] == ["a", "b", "d"]
    assert [*copied] == ["a", "b", "c", "d"]
    assert (names.after("", 2), names.after("b", 5), names.after("c", 1)) == (["a", "b"], ["d"], ["d"])
    assert len(names) == 3
