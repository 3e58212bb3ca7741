"""The states of one hosted replica.

::

                      +-> DISK_FULL -+
                      |              v
    OPENING ----------+----------> SERVING --> UNDER_REPAIR --> OPENING
      |  ^            |                          ^     |
      v  |            +--> UNDER_REPAIR ---------+     v
    (again)           +--> NEEDS_OPERATOR <-----> (repair is tried again)

Any state leads to CLOSING, which is the last one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from raftlog.exhaustion import exhaustion
from raftlog.hosting.tenant import NotYet, Tenant
from raftlog.storage.filesystem import is_disk_full


class HostedState(StrEnum):
    """The state of a hosted replica. The value is the label in metrics."""

    OPENING = "opening"  # its log is opened as soon as the tenant allows it
    SERVING = "serving"  # it takes part in its group
    DISK_FULL = "disk_full"  # the disk had no room when the log was opened; opening is retried
    UNDER_REPAIR = "under_repair"  # it has failed, and the repair scheduler handles it
    NEEDS_OPERATOR = "needs_operator"  # no peer can repair it, or it has broken an invariant
    CLOSING = "closing"  # it is being closed


@dataclass(slots=True, eq=False)
class HostedReplica:
    """One tenant and its state."""

    tenant: Tenant
    state: HostedState = HostedState.OPENING
    error: BaseException | None = None  # the error that needs a repair; None without one
    reason: str = ""  # why it does not serve, for people
    has_failed: bool = False  # since it served last

    @property
    def is_waiting(self) -> bool:
        """Whether the log of the replica must be opened."""
        return self.state in (HostedState.OPENING, HostedState.DISK_FULL)

    @property
    def is_repairable(self) -> bool:
        """Whether the repair scheduler should handle the replica."""
        has_failed = self.state in (HostedState.UNDER_REPAIR, HostedState.NEEDS_OPERATOR)
        return has_failed and self.error is not None and not self.tenant.is_leaving

    def open_again(self) -> None:
        """Open the log again after a repair: it is whole."""
        if self.state is not HostedState.CLOSING:
            self.state, self.error = HostedState.OPENING, None

    def serve(self) -> None:
        """Note that the replica takes part in its group."""
        self.state, self.error, self.reason = HostedState.SERVING, None, ""
        self.has_failed = False

    def fail(self, error: BaseException) -> None:
        """Note the error with which the log could not be opened, or with which the replica has stopped."""
        self.reason = f"{type(error).__name__}: {error}"
        if self.state is HostedState.CLOSING:
            return
        is_full = self.is_waiting and isinstance(error, OSError) and is_disk_full(error)
        is_exhausted = self.is_waiting and not is_full and exhaustion(error) is not None
        if isinstance(error, NotYet) or is_exhausted:
            self.state, self.error = HostedState.OPENING, None
        else:
            self.state = HostedState.DISK_FULL if is_full else HostedState.UNDER_REPAIR
            self.error, self.has_failed = error, True

    def needs_operator(self, reason: str) -> None:
        """Note that only an operator can help this replica, and why."""
        self.reason = reason
        if self.state is not HostedState.CLOSING:
            self.state = HostedState.NEEDS_OPERATOR
