"""Counts the bytes of joined members that wait until the rest of their group has joined again.

These members are in no row until the next generation is written. Counting them early keeps room for that row:
further joins in this group, or in another group of its creator, are refused in time.
"""

from __future__ import annotations

from raftlog.hosting.budget import Usage


class JoiningBytes:
    """Bytes of waiting members by group, and by the address that created the group."""

    def __init__(self) -> None:
        self.of_groups, self.of_clients = Usage(), Usage()
        self.members: dict[str, dict[str, tuple[str, int]]] = {}  # clients and bytes, by group and member

    def of_member(self, group: str, member_id: str) -> int:
        """The bytes of one waiting member; 0 if the member does not wait."""
        return self.members.get(group, {}).get(member_id, ("", 0))[1]

    def put(self, group: str, client: str, member_id: str, size_bytes: int) -> None:
        """Count a member that has joined, perhaps again. ``client`` is the address of the group's creator."""
        members = self.members.setdefault(group, {})
        self._add(group, members.get(member_id), -1)
        members[member_id] = client, size_bytes
        self._add(group, members[member_id], 1)

    def forget(self, group: str, member_id: str) -> None:
        """Stop counting a member that is removed before the rest of the group has joined."""
        self._add(group, self.members.get(group, {}).pop(member_id, None), -1)

    def remove(self, group: str) -> None:
        """Stop counting the members of a group, because they are in its row now, or have left."""
        for member in self.members.pop(group).values():
            self._add(group, member, -1)

    def _add(self, group: str, member: tuple[str, int] | None, sign: int) -> None:
        if member is not None:
            client, size_bytes = member
            self.of_groups.add(group, sign * size_bytes)
            self.of_clients.add(client, sign * size_bytes)
