"""The checker of group histories: each violation is seen, and its near miss is not."""

from __future__ import annotations

from chaos.consumer_groups.checkers import check
from chaos.consumer_groups.history import (
    Acknowledged,
    Committed,
    Delivered,
    Event,
    GroupHistory,
    Owned,
    SeenGeneration,
    SeenOffset,
    Surprise,
)


def kinds(*events: Event) -> list[str]:
    return [violation.kind for violation in check(GroupHistory.of(events))]


def acknowledged(offset: int, *values: str, partition: int = 0) -> Acknowledged:
    return Acknowledged(partition=partition, offset=offset, values=values)


def delivered(*records: tuple[int, str], member: str = "a", partition: int = 0) -> Delivered:
    return Delivered(member=member, partition=partition, records=records)


def owned(member: str, generation: int, *partitions: int, at: float = 0, took: float = 1) -> Owned:
    return Owned(
        member=member, generation=generation, partitions=partitions, invoked_s=at, completed_s=at + took
    )


def committed(offset: int, generation: int, *, at: float, took: float = 1, member: str = "a") -> Committed:
    return Committed(
        member=member,
        generation=generation,
        partition=0,
        offset=offset,
        invoked_s=at,
        completed_s=at + took,
    )


def seen(offset: int, generation: int, *, at: float, took: float = 1, partition: int = 0) -> SeenOffset:
    return SeenOffset(
        partition=partition, offset=offset, generation=generation, invoked_s=at, completed_s=at + took
    )


def begun(generation: int, *, at: float, took: float = 1) -> SeenGeneration:
    return SeenGeneration(generation=generation, invoked_s=at, completed_s=at + took)


def test_a_good_history_has_no_violation() -> None:
    assert (
        kinds(
            owned("a", 1, 0, 1),
            acknowledged(0, "x", "y"),
            delivered((0, "x"), (1, "y")),
            committed(2, 1, at=2),
            seen(2, 1, at=4),
            owned("b", 2, 0, at=5),
            owned("a", 2, 1, at=5),
            begun(2, at=7),
        )
        == []
    )


def test_a_record_that_nobody_got_is_lost() -> None:
    assert kinds(acknowledged(4, "x", "y"), delivered((4, "x"))) == ["lost record"]
    assert kinds(acknowledged(4, "x"), delivered((4, "x"), partition=1)) == ["lost record"]
    assert kinds(acknowledged(4, "x"), delivered((4, "another"))) == ["lost record"]


def test_a_record_may_be_delivered_twice() -> None:
    assert kinds(acknowledged(4, "x"), delivered((4, "x")), delivered((4, "x"), member="b")) == []


def test_two_members_with_one_partition_in_one_generation() -> None:
    assert kinds(owned("a", 3, 0, 1), owned("b", 3, 1, 2)) == ["two owners"]
    assert kinds(owned("a", 3, 0), committed(5, 3, at=0, member="b")) == ["two owners"]
    assert kinds(committed(5, 3, at=0, member="a"), committed(6, 3, at=0, member="b")) == ["two owners"]


def test_a_partition_may_change_its_owner_with_the_generation() -> None:
    assert kinds(owned("a", 3, 0), owned("b", 4, 0), owned("b", 4, 0)) == []


def test_an_offset_that_falls_within_a_generation() -> None:
    kind = "offset fell within a generation"
    assert kinds(committed(9, 3, at=0), seen(8, 3, at=2)) == [kind]
    assert kinds(seen(9, 3, at=0), seen(8, 3, at=2)) == [kind]


def test_an_acknowledged_commit_that_is_lost_between_generations() -> None:
    assert kinds(committed(9, 3, at=0), seen(8, 4, at=2)) == ["offset fell"]
    assert kinds(committed(9, 3, at=0), seen(8, 2, at=2)) == ["offset fell"]  # an old commit is shown again
    assert kinds(committed(9, 3, at=0), committed(8, 4, at=2)) == ["offset fell"]


def test_offsets_that_do_not_fall() -> None:
    assert (
        kinds(committed(9, 3, at=0), committed(8, 3, at=2), seen(9, 3, at=4)) == []
    )  # late, changes nothing
    assert kinds(committed(9, 3, at=0, took=3), seen(8, 3, at=2)) == []  # at the same time
    assert kinds(seen(9, 3, at=0), seen(8, 3, at=2, partition=1)) == []


def test_a_generation_that_falls() -> None:
    assert kinds(begun(4, at=0), begun(3, at=2)) == ["generation fell"]
    assert kinds(begun(4, at=0), owned("a", 3, 0, at=2)) == ["generation fell"]
    assert kinds(seen(1, 4, at=0), begun(3, at=2)) == ["generation fell"]


def test_generations_that_do_not_fall() -> None:
    assert kinds(begun(4, at=0, took=3), begun(3, at=2)) == []
    assert kinds(begun(4, at=0), begun(4, at=2), begun(7, at=4)) == []
    assert kinds(begun(4, at=0), seen(1, 3, at=2)) == []  # nobody has committed since


def test_a_commit_of_an_earlier_generation_is_accepted() -> None:
    assert kinds(begun(4, at=0), committed(9, 3, at=2)) == ["stale commit"]
    assert kinds(begun(4, at=0, took=3), committed(9, 3, at=2)) == []
    assert kinds(begun(4, at=0), committed(9, 4, at=2)) == []


def test_a_response_that_no_member_should_get() -> None:
    assert kinds(Surprise(member="a", what="500")) == ["surprise"]
