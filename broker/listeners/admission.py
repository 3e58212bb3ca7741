"""Limits the memory for requests: counts the bytes of bodies and the waiting requests before they are stored.

Decides: how much all clients together and each client alone may have in flight. Beyond the first limit the
broker is overloaded (503); beyond the second the client exceeds its quota (429). A client is a network
address.
"""

from __future__ import annotations

from types import TracebackType

from broker.listeners.answers_in_flight import AnswersInFlight
from broker.ports import Limits
from raftlog.errors import Overloaded, QuotaExceeded

RETRY_AFTER_MS = 1000


class Budget:
    """An amount of one resource (bytes of bodies, or waiting requests) that all clients share, with a limit
    for each client.
    """

    def __init__(self, what: str, total_max: int, client_max: int) -> None:
        self.what = what
        self.total_max = total_max
        self.client_max = client_max
        self.total = 0
        self._of_client: dict[str, int] = {}

    def hold(self, client: str, amount: int) -> Hold:
        """Start a hold of ``amount``, which is reserved until the hold ends. Raises ``Overloaded`` or
        ``QuotaExceeded``.
        """
        held = Hold(self, client)
        if amount:
            held.grow(amount)
        return held

    def take(self, client: str, amount: int) -> None:
        """Reserve an amount for a client.

        Beyond a limit, raises ``Overloaded`` or ``QuotaExceeded`` and reserves no part of the amount.
        """
        self._of_client[client] = self.check(client, amount)
        self.total += amount

    def check(self, client: str, amount: int) -> int:
        """Return the total that the client would hold after ``take``.

        Raises the errors of ``take``; reserves no amount.
        """
        if self.total + amount > self.total_max:
            raise Overloaded(
                f"{self.total} of {self.total_max} {self.what} are in flight at this broker; wait and retry",
                retry_after_ms=RETRY_AFTER_MS,
                limit=self.total_max,
            )
        of_client = self._of_client.get(client, 0) + amount
        if of_client > self.client_max:
            raise QuotaExceeded(
                f"this client would have {of_client} {self.what} in flight, but {self.client_max} are "
                "allowed; wait for responses before sending more",
                retry_after_ms=RETRY_AFTER_MS,
                limit=self.client_max,
            )
        return of_client

    def give_back(self, client: str, amount: int) -> None:
        """Release an amount that ``take`` reserved."""
        self.total -= amount
        left = self._of_client[client] - amount
        if left:
            self._of_client[client] = left
        else:
            del self._of_client[client]


class Hold:
    """The amount of a budget that one request has reserved. The end of the ``with`` block releases the
    amount.
    """

    __slots__ = ("_amount", "_budget", "_client")

    def __init__(self, budget: Budget, client: str) -> None:
        self._budget = budget
        self._client = client
        self._amount = 0

    def expect(self, amount: int) -> None:
        """Raise the error that ``grow`` would raise now for this amount; reserve no amount."""
        self._budget.check(self._client, amount)

    def grow(self, amount: int) -> None:
        """Reserve a further amount for the request."""
        if amount:
            self._budget.take(self._client, amount)
            self._amount += amount

    def __enter__(self) -> Hold:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._amount:
            self._budget.give_back(self._client, self._amount)
            self._amount = 0


class Admission:
    """The limits of one broker on memory: for bodies of requests, for responses, and for waiting requests."""

    def __init__(self, limits: Limits) -> None:
        self.bodies = Budget(
            "bytes of bodies", limits.request_bytes_in_flight_max, limits.request_bytes_in_flight_client_max
        )
        self.answers = AnswersInFlight(limits.response_bytes_in_flight_max)
        self.parked = Budget("waiting requests", limits.parked_max, limits.parked_client_max)
