"""Groups and their members share partitions: each group has all of them, each partition one member."""

from __future__ import annotations

from groups.requests import Done
from tests.helpers.group_coordination import CoordinatedGroups


def owners(groups: CoordinatedGroups, group: str) -> dict[int, list[str]]:
    """The members that read each partition of ``orders``."""
    found: dict[int, list[str]] = {partition: [] for partition in range(groups.counts["orders"])}
    for name, member in groups.committed.groups[group].members.items():
        for partition in member.assignment.get("orders", ()):
            found[partition].append(name)
    return found


# requirement: G2
def test_each_group_reads_all_partitions_from_positions_of_its_own() -> None:
    groups = CoordinatedGroups({"orders": 4})
    generation = groups.stable("a", group="audit")
    groups.stable("b", group="billing")
    assert owners(groups, "audit") == {number: ["a"] for number in range(4)}
    assert owners(groups, "billing") == {number: ["b"] for number in range(4)}
    groups.commit(Done, 7, group="audit", member="a", generation=generation)
    assert groups.offset(group="audit") == 7
    assert groups.offset(group="billing") is None


# requirement: G3
def test_each_partition_is_read_by_one_member_of_a_group() -> None:
    groups = CoordinatedGroups({"orders": 7})
    for members in (("a",), ("a", "b"), ("a", "b", "c")):
        name = f"of {len(members)}"
        groups.stable(*members, group=name)
        found = owners(groups, name)
        assert all(len(each) == 1 for each in found.values()), found
        assert {each for (each,) in found.values()} == {*members}
