"""The bytes of joined members that wait until the rest of their group has joined again.

They are in no row until the next generation is written, and have room there by then: what joins meanwhile, in
this group or in another one of its creator, is refused in time.
"""

from __future__ import annotations

from raftlog.hosting.budget import Usage


class JoiningBytes:
    """The bytes by group, and by the address that created the group."""

    def __init__(self) -> None:
        self.of_groups, self.of_clients = Usage(), Usage()
        self.members: dict[str, dict[str, tuple[str, int]]] = {}  # clients and bytes, by group and member

    def of_member(self, group: str, member_id: str) -> int:
        """The bytes of one member; 0 unless it waits."""
        return self.members.get(group, {}).get(member_id, ("", 0))[1]

    def put(self, group: str, client: str, member_id: str, size_bytes: int) -> None:
        """A member has joined, perhaps not for the first time; ``client`` has created the group."""
        members = self.members.setdefault(group, {})
        self._add(group, members.get(member_id), -1)
        members[member_id] = client, size_bytes
        self._add(group, members[member_id], 1)

    def forget(self, group: str, member_id: str) -> None:
        """Forget a member that is removed before the rest of the group has joined."""
        self._add(group, self.members.get(group, {}).pop(member_id, None), -1)

    def remove(self, group: str) -> None:
        """The members of a group are written, or gone."""
        for member in self.members.pop(group).values():
            self._add(group, member, -1)

    def _add(self, group: str, member: tuple[str, int] | None, sign: int) -> None:
        if member is not None:
            client, size_bytes = member
            self.of_groups.add(group, sign * size_bytes)
            self.of_clients.add(client, sign * size_bytes)
