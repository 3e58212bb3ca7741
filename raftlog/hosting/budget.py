"""How much state of one kind a coordinator keeps, and how much of it one owner may have. Pure.

The state counts what its rows take, so the counts of all replicas are equal, and a new leader refuses what
its predecessor refused. Only the leader checks, before it writes; a request that frees state is not refused.

Decides: who is refused, and to whom an address belongs (``share_owner``). Leaves to others: what a row takes
(the states), and who its owner is: a topic, a group, or a client. Rows that older versions wrote may have the
owner ``""``, who has no share.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv6Address, IPv6Network
from typing import Final

from raftlog.errors import Overloaded, QuotaExceeded

SHARE: Final = 4  # a quarter for one owner, unless a budget says otherwise
RECHECK_MS: Final = 5_000  # until a refused request may look again for room that others may free at any time
PREFIX_BITS: Final = 64  # of an IPv6 network, whose addresses one machine can use as it likes
KNOWN_ADDRESSES: Final = 10_000


@lru_cache(KNOWN_ADDRESSES)
def share_owner(address: str) -> str:
    """The owner of the shares of a client at this address.

    All addresses of an IPv6 network of 64 bits are one owner, and an IPv4 address that is written as an IPv6
    address (``::ffff:192.0.2.1``) is that of IPv4. Other texts, and owners, are returned unchanged.
    """
    if ":" not in address or "/" in address:
        return address
    try:
        ip = IPv6Address(address)
    except ValueError:
        return address
    return str(ip.ipv4_mapped or IPv6Network((int(ip), PREFIX_BITS), strict=False))


class Usage:
    """Amounts by owner, and their sum."""

    __slots__ = ("_of", "total")

    def __init__(self) -> None:
        self.total = 0
        self._of: dict[str, int] = {}

    def add(self, owner: str, amount: int) -> None:
        """The owner has so much more, or less."""
        self.total += amount
        self._of[owner] = self._of.get(owner, 0) + amount
        if not self._of[owner]:
            del self._of[owner]

    def of(self, owner: str) -> int:
        """The amount of one owner."""
        return self._of.get(owner, 0)

    def copy(self) -> Usage:
        """An independent copy of the amounts."""
        copied = Usage()
        copied.total, copied._of = self.total, dict(self._of)
        return copied


@dataclass(frozen=True, slots=True)
class Budget:
    """The bound of one partition. ``what`` is the unit, for people: ``bytes of consumer groups``."""

    what: str
    total_max: int
    remedy: str  # what frees some of it
    share: int = SHARE  # an owner may have this part of all
    share_min: int = 0  # or so much where that is more, up to three quarters of all

    @property
    def share_max(self) -> int:
        """The bound of one owner."""
        return max(1, self.total_max // self.share, min(self.share_min, self.total_max * 3 // 4))

    def is_in_share(self, used: Usage, owner: str, more: int) -> bool:
        """Whether the owner may have so much more, whatever others have."""
        return not owner or used.of(owner) + more <= self.share_max

    def has_room(self, used: Usage, owner: str, more: int) -> bool:
        """Whether ``check`` lets the owner have so much more."""
        return self.is_in_share(used, owner, more) and used.total + more <= self.total_max

    def check(self, used: Usage, kind: str, owner: str, more: int, retry_after_ms: int) -> None:
        """Raise ``QuotaExceeded`` or ``Overloaded`` if the owner may not have so much more.

        ``kind`` is that of the owner, such as ``topic``. ``retry_after_ms`` is when time frees some, at the
        earliest, or at most ``RECHECK_MS`` where others may free some at any time.
        """
        if more <= 0:
            return
        if not self.is_in_share(used, owner, more):
            raise QuotaExceeded(
                f"{kind} {owner} has {used.of(owner)} {self.what} here and asks for {more} more, "
                f"{self.share_max} are allowed; {self.remedy}",
                retry_after_ms=retry_after_ms,
                limit=self.share_max,
            )
        if used.total + more > self.total_max:
            raise Overloaded(
                f"there are {used.total} {self.what} here and {more} more are asked for, "
                f"{self.total_max} are allowed; {self.remedy}",
                retry_after_ms=retry_after_ms,
                limit=self.total_max,
            )
