"""The bound on a coordinator's state of one kind, and the share of one owner in it. Pure.

The state itself counts the size of its rows, so the counts of all replicas are equal, and a new leader
refuses the requests that its predecessor would have refused. Only the leader checks, before it writes; a
request that frees state is not refused.

Decides: which request is refused, and which owner an address belongs to (``share_owner``). Leaves to others:
the size of a row (the states), and its owner: a topic, a group, or a client. Rows that older versions wrote
may have the owner ``""``, whose share has no bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv6Address, IPv6Network
from typing import Final

from raftlog.errors import Overloaded, QuotaExceeded

SHARE: Final = 4  # one owner may have a quarter, unless a budget says otherwise
RECHECK_MS: Final = 5_000  # retry interval of a refused request for room that others may free at any time
PREFIX_BITS: Final = 64  # of an IPv6 network, whose addresses one machine can use freely
KNOWN_ADDRESSES: Final = 10_000


@lru_cache(KNOWN_ADDRESSES)
def share_owner(address: str) -> str:
    """The name of the owner to which a client's address belongs.

    All addresses of an IPv6 network of 64 bits belong to one owner. An IPv4 address that is written as an
    IPv6 address (``::ffff:192.0.2.1``) belongs to the owner of the IPv4 address. Other texts are returned
    unchanged.
    """
    if ":" not in address or "/" in address:
        return address
    try:
        ip = IPv6Address(address)
    except ValueError:
        return address
    return str(ip.ipv4_mapped or IPv6Network((int(ip), PREFIX_BITS), strict=False))


class Usage:
    """The amount that each owner uses, and the sum of these amounts."""

    __slots__ = ("_of", "total")

    def __init__(self) -> None:
        self.total = 0
        self._of: dict[str, int] = {}

    def add(self, owner: str, amount: int) -> None:
        """Add ``amount``, which may be negative, to the owner's amount."""
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
    """The bound on the state of one partition.

    ``what`` is the unit, for people: ``bytes of consumer groups``.
    """

    what: str
    total_max: int
    remedy: str  # the user's action that frees some of it
    share: int = SHARE  # an owner may have the total divided by this
    share_min: int = 0  # or this amount if it is more, up to three quarters of the total

    @property
    def share_max(self) -> int:
        """The largest amount that one owner may use."""
        return max(1, self.total_max // self.share, min(self.share_min, self.total_max * 3 // 4))

    def is_in_share(self, used: Usage, owner: str, more: int) -> bool:
        """Whether the owner's own share allows ``more``, whatever other owners use."""
        return not owner or used.of(owner) + more <= self.share_max

    def has_room(self, used: Usage, owner: str, more: int) -> bool:
        """Whether ``check`` allows the owner to use ``more``."""
        return self.is_in_share(used, owner, more) and used.total + more <= self.total_max

    def check(self, used: Usage, kind: str, owner: str, more: int, retry_after_ms: int) -> None:
        """Raise ``QuotaExceeded`` or ``Overloaded`` if the owner may not use ``more``.

        ``kind`` is the owner's kind, such as ``topic``. ``retry_after_ms`` is the earliest time at which a
        part is freed, or at most ``RECHECK_MS`` if other owners may free a part at any time.
        """
        if more <= 0:
            return
        if not self.is_in_share(used, owner, more):
            raise QuotaExceeded(
                f"{kind} {owner} has {used.of(owner)} {self.what} and asks for {more} more, but "
                f"{self.share_max} are allowed; {self.remedy}",
                retry_after_ms=retry_after_ms,
                limit=self.share_max,
            )
        if used.total + more > self.total_max:
            raise Overloaded(
                f"there are {used.total} {self.what} and the request asks for {more} more, but "
                f"{self.total_max} are allowed; {self.remedy}",
                retry_after_ms=retry_after_ms,
                limit=self.total_max,
            )
