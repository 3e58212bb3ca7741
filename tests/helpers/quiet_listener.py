"""A group listener for tests that do not check notifications."""

from __future__ import annotations

from raftlog.core.membership import Membership
from raftlog.core.ready import Role
from raftlog.errors import CommitUnknown
from raftlog.types import Index, NodeId, Term


class QuietListener:
    """A ``GroupListener`` that only requires a clean end."""

    def role_changed(self, role: Role, term: Term, leader: NodeId | None) -> None:
        """Nothing to do."""

    def commit_advanced(self, commit_index: Index) -> None:
        """Nothing to do."""

    def membership_changed(self, membership: Membership, is_committed: bool) -> None:
        """Nothing to do."""

    def removed(self) -> None:
        """Nothing to do."""

    def replica_stopped(self, error: BaseException) -> None:
        """Proposals may be left; no error may have occurred."""
        assert isinstance(error, CommitUnknown)
