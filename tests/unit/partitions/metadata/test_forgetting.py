"""Which brokers may join, be drained, be decommissioned and be removed for good."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from partitions.metadata import liveness
from partitions.metadata.admission import ANY_ID
from partitions.metadata.commands import (
    AdmitBroker,
    Command,
    CreateTopic,
    DecommissionBroker,
    DrainBroker,
    FenceBroker,
    ForgetBroker,
    UnfenceBroker,
)
from partitions.metadata.features import FORGETTING, NEWEST
from partitions.metadata.forgetting import check_out_of_use
from partitions.metadata.image import BrokerInfo, MetadataImage, PlannedMove
from partitions.metadata.machine import decode_image, encode_image
from partitions.metadata.planner import NewTopic, PlannerLimits, plan
from partitions.metadata.plans import MoveState, state_of
from partitions.metadata.voters import wanted_voters
from raftlog.errors import BrokerNotFound, Conflict, InvalidRequest, PreconditionFailed, RaftlogError
from raftlog.types import NodeId
from tests.helpers.metadata_images import applied, cluster, create, register, reported, set_replicas

FOUR = NodeId(4)
DOWN = FenceBroker(FOUR, "first")
LEAVES = DecommissionBroker(FOUR)
ADMISSION = "a" * 32


def admission(broker: int = 0, *, request: str = ADMISSION, replaces: bool = False) -> AdmitBroker:
    return AdmitBroker(request, NodeId(broker), "http://127.0.0.1:7999", "127.0.0.1", 9999, None, replaces)


def four(*commands: Command) -> MetadataImage:
    """Brokers 1 to 4 of the newest feature level, the fourth of which has joined; then these commands."""
    admitted, _ = applied(admission(4), to=cluster(brokers=3))
    image, _ = applied(register(4), *commands, to=admitted)
    return replace(image, feature_level=NEWEST)


def planned(image: MetadataImage, broker: int = 4) -> ForgetBroker:
    command = plan(ForgetBroker(NodeId(broker)), image, PlannerLimits())
    assert isinstance(command, ForgetBroker)
    return command


def forgotten(image: MetadataImage) -> MetadataImage:
    after, reply = applied(planned(image), to=image)
    assert reply == after.version
    return after


def refused(image: MetadataImage, *, voters: tuple[int, ...] = (), dead: tuple[int, ...] = ()) -> str:
    with pytest.raises(Conflict) as error:
        check_out_of_use(
            planned(image),
            image,
            voters=[*map(NodeId, voters)],
            dead=[*map(NodeId, dead)],
            is_heard=False,
        )
    return str(error.value)


# requirement: F3
def test_a_stopped_broker_that_is_decommissioned_leaves_the_metadata() -> None:
    image = four(create("orders", (1, 2, 3)), LEAVES, DOWN)
    after = forgotten(image)
    assert {*after.brokers} == {1, 2, 3}
    assert after.forgotten == {FOUR: ADMISSION}
    assert not after.is_in_use(FOUR)
    assert after.version > image.version
    assert decode_image(encode_image(after)) == after


def test_a_repeated_request_changes_nothing() -> None:
    after = forgotten(four(LEAVES, DOWN))
    again, reply = applied(planned(after), to=after)
    assert again is after
    assert reply == after.version


@pytest.mark.parametrize(
    ("image", "says"),
    [
        (four(LEAVES), r"broker 4 is alive at .*; decommission it .*, stop its process"),
        (
            four(create("orders", (1, 2, 4)), LEAVES, DOWN),
            r"broker 4 still has 1 replica: orders/0; move them with `raftlog",
        ),
        (four(create("orders", (1, 2, 3)), set_replicas("orders", (2, 3, 4), (1, 2, 3)), DOWN), "orders/0"),
        (
            four(create("orders", *[(1, 2, 4)] * 9), LEAVES, DOWN),
            r"still has 9 replicas: orders/0, .*, orders/4 and 4 more;",
        ),
        (replace(four(LEAVES, DOWN), feature_level=FORGETTING - 1), f"feature level {FORGETTING}"),
    ],
)
def test_a_broker_in_use_is_refused_and_its_use_is_named(image: MetadataImage, says: str) -> None:
    with pytest.raises(Conflict, match=says):
        planned(image)


# requirement: F3
def test_a_broker_that_a_move_may_have_reached_before_it_was_called_off_counts() -> None:
    image = four(
        create("orders", (1, 2, 3)),
        set_replicas("orders", (2, 3, 4), (1, 2, 3)),
        set_replicas("orders", (1, 2, 3), (2, 3, 4)),
        LEAVES,
        DOWN,
    )
    assert image.replicas_on(NodeId(4)) == 1, "its decommissioning is not over"
    with pytest.raises(Conflict, match="broker 4 still has 1 replica: orders/0"):
        planned(image)
    over, _ = applied(reported("orders", (1, 2, 3), 9), to=image)
    assert 4 not in forgotten(over).brokers


def test_an_unknown_broker_is_refused() -> None:
    with pytest.raises(BrokerNotFound, match="there is no broker 9; the brokers are 1, 2, 3, 4"):
        planned(four(), 9)


# requirement: F3
def test_what_the_metadata_do_not_show_is_checked_too() -> None:
    image = four(LEAVES, DOWN)
    check_out_of_use(planned(image), image, voters=[NodeId(1)], dead=[], is_heard=False)
    assert "broker 4 still votes on metadata" in refused(image, voters=(1, 4))
    with pytest.raises(Conflict, match="broker 4 is alive"):
        check_out_of_use(planned(image), image, voters=[], dead=[], is_heard=True)


def test_a_broker_in_use_is_removed_once_it_is_dead() -> None:
    image = four(DOWN)
    assert "neither decommissioned nor dead for timing.restore_after_ms" in refused(image)
    check_out_of_use(planned(image), image, voters=[], dead=[FOUR], is_heard=False)


def test_a_broker_that_never_started_is_removed_at_once() -> None:
    image, _ = applied(admission(4), to=replace(cluster(brokers=3), feature_level=NEWEST))
    check_out_of_use(planned(image), image, voters=[], dead=[], is_heard=False)
    assert FOUR not in forgotten(image).brokers


@pytest.mark.parametrize(
    ("since", "error"),
    [
        (UnfenceBroker(FOUR, "first"), Conflict),
        (register(4, incarnation="second"), PreconditionFailed),
        (create("orders", (1, 2, 4)), Conflict),
    ],
)
def test_a_committed_removal_is_checked_again(since: Command, error: type[RaftlogError]) -> None:
    image = four(LEAVES, DOWN)
    command = planned(image)
    changed, _ = applied(since, to=image)
    after, reply = applied(command, to=changed)
    assert after is changed
    assert isinstance(reply, error)


# requirement: F3
def test_the_id_is_not_given_again() -> None:
    image = forgotten(four(LEAVES, DOWN))
    command = plan(admission(ANY_ID, request="b" * 32), image, PlannerLimits())
    assert isinstance(command, AdmitBroker)
    assert command.broker_id == 5
    for replaces in (False, True):
        request = admission(4, request="b" * 32, replaces=replaces)
        with pytest.raises(Conflict, match="the id 4 belonged to a broker that was removed"):
            plan(request, image, PlannerLimits())
        after, reply = applied(request, to=image)
        assert after is image
        assert isinstance(reply, Conflict)


@pytest.mark.parametrize("broker", [4, ANY_ID])
def test_a_request_that_admitted_a_removed_broker_admits_no_other(broker: int) -> None:
    image = forgotten(four(LEAVES, DOWN))
    with pytest.raises(Conflict, match="this request admitted broker 4, which was removed"):
        plan(admission(broker), image, PlannerLimits())
    after, reply = applied(admission(5), to=image)
    assert after is image
    assert isinstance(reply, Conflict)


def test_a_process_of_a_removed_broker_cannot_register() -> None:
    image = forgotten(four(LEAVES, DOWN))
    with pytest.raises(Conflict, match="broker 4 was removed from the cluster: stop this process"):
        plan(register(4, incarnation="second", replaces=""), image, PlannerLimits())
    after, reply = applied(register(4, incarnation="second"), to=image)
    assert after is image
    assert isinstance(reply, Conflict)


def test_one_of_the_first_brokers_can_be_removed_too() -> None:
    image = four(DecommissionBroker(NodeId(1)), FenceBroker(NodeId(1), "first"))
    after, _ = applied(planned(image, 1), to=image)
    assert after.forgotten == {NodeId(1): ""}
    command = plan(admission(ANY_ID, request="b" * 32), after, PlannerLimits())
    assert isinstance(command, AdmitBroker)
    assert command.broker_id == 5
    _, reply = applied(command, to=after)
    assert isinstance(reply, BrokerInfo), "no request admitted broker 1"


def test_a_removed_broker_loses_a_vote_that_it_was_given_meanwhile() -> None:
    image = forgotten(four(LEAVES, DOWN))
    voters = frozenset(map(NodeId, (1, 2, 4)))
    assert wanted_voters(image, voters, (), (1, 2, 3), ()) == {1, 2, 3}


def test_a_planned_move_to_a_removed_broker_is_dropped() -> None:
    image = forgotten(four(create("orders", (1, 2, 3)), LEAVES, DOWN))
    topic = image.topics["orders"]
    target = (NodeId(1), NodeId(2), FOUR)
    move = PlannedMove("orders", topic.topic_id, 0, topic.partitions[0].replicas, target)
    assert state_of(image, move) is MoveState.DROPPED


def planned_decommission(image: MetadataImage, broker: int, *, undo: bool = False) -> DecommissionBroker:
    request = DecommissionBroker(NodeId(broker), not undo)
    command = plan(request, image, PlannerLimits())
    assert command == request
    return request


# requirement: F3
def test_a_broker_whose_replicas_others_can_hold_is_decommissioned() -> None:
    image, _ = applied(create("orders", (2, 3, 4)), to=cluster(brokers=4))
    planned_decommission(image, 4)
    planned_decommission(image, 1)


def test_the_last_brokers_that_can_hold_a_partition_are_refused_by_name() -> None:
    image, _ = applied(create("orders", (1, 2, 3)), to=cluster(brokers=3))
    with pytest.raises(Conflict, match="'orders' has replication factor 3, but without broker 3 only 2"):
        planned_decommission(image, 3)


@pytest.mark.parametrize("change", [DrainBroker(NodeId(1)), FenceBroker(NodeId(1), "first")])
def test_brokers_that_take_no_replicas_cannot_hold_one(change: DrainBroker | FenceBroker) -> None:
    image, _ = applied(create("orders", (2, 3, 4)), change, to=cluster(brokers=4))
    with pytest.raises(Conflict):
        planned_decommission(image, 4)


def test_of_two_administrators_the_second_is_refused() -> None:
    image, _ = applied(create("orders", (1, 2, 3)), to=cluster(brokers=4))
    image, _ = applied(planned_decommission(image, 3), to=image)
    with pytest.raises(Conflict):
        planned_decommission(image, 2)
    planned_decommission(image, 3)  # the same one asks again
    planned_decommission(image, 3, undo=True)


def test_a_replica_on_its_way_to_the_broker_counts_too() -> None:
    image, _ = applied(
        create("orders", (1, 2, 3)), set_replicas("orders", (2, 3, 4), (1, 2, 3)), to=cluster(brokers=4)
    )
    image, _ = applied(DrainBroker(NodeId(1)), to=image)
    with pytest.raises(Conflict):
        planned_decommission(image, 4)


def test_a_broker_without_replicas_is_always_allowed_and_an_unknown_one_never() -> None:
    image, _ = applied(create("orders", (1, 2, 3)), to=cluster(brokers=4))
    planned_decommission(image, 4)
    with pytest.raises(InvalidRequest, match="no broker 9 is registered; the brokers are 1, 2, 3, 4"):
        planned_decommission(image, 9)


def drained(image: MetadataImage, broker: int) -> MetadataImage:
    request = DrainBroker(NodeId(broker))
    assert plan(request, image, PlannerLimits()) == request
    return applied(request, to=image)[0]


# requirement: F3
def test_one_broker_at_a_time_is_drained_in_every_cluster() -> None:
    image, _ = applied(create("orders", (1, 2, 3)), to=cluster(brokers=3))
    one = drained(image, 1)
    assert drained(one, 1) is one, "a repeated request"
    with pytest.raises(Conflict, match=r"brokers \[1\] are draining or down.* only 1 broker .* factor 3"):
        drained(one, 2)
    alone, _ = applied(create("orders", (1,)), to=cluster(brokers=1))
    drained(alone, 1)


def test_as_many_brokers_are_drained_as_leave_enough_for_each_topic() -> None:
    image, _ = applied(create("orders", (1, 2, 3)), create("single", (1,), number=2), to=cluster(brokers=5))
    two = drained(drained(image, 1), 2)
    down, _ = applied(FenceBroker(NodeId(4), "first"), to=two)
    assert drained(down, 2) is down, "a repeated request"
    with pytest.raises(
        Conflict, match=r"topic 'orders' has replication factor 3; first recommission or start"
    ) as it:
        drained(two, 3)
    assert it.value.details["topics"] == ["orders"]


def test_a_broker_that_is_down_counts_as_drained_and_a_decommissioned_one_does_not() -> None:
    image, _ = applied(create("orders", (1, 2, 3)), to=cluster(brokers=4))
    down, _ = applied(FenceBroker(NodeId(4), "first"), DecommissionBroker(NodeId(4)), to=image)
    drained(down, 1)
    down, _ = applied(FenceBroker(NodeId(4), "first"), to=image)
    drained(drained(image, 4), 4)
    with pytest.raises(Conflict, match=r"brokers \[4\]"):
        drained(down, 1)


def test_an_unknown_broker_is_not_drained() -> None:
    with pytest.raises(InvalidRequest, match="no broker 9 is registered; the brokers are 1, 2, 3"):
        drained(cluster(brokers=3), 9)


def test_many_topics_are_named_by_their_factors() -> None:
    commands = [create(f"t{number}", (1, 2, 3), number=number) for number in range(7)]
    image, _ = applied(*commands, create("wide", (1, 2, 3, 4, 5), number=9), to=cluster(brokers=5))
    image, _ = applied(DrainBroker(NodeId(4)), DrainBroker(NodeId(5)), to=image)
    with pytest.raises(
        Conflict,
        match="topic 'wide' has replication factor 5 and topics 't0', 't1', 't2', 't3', 't4' and 2 more "
        "have replication factor 3, but without broker 1 only 2 brokers can hold replicas",
    ):
        planned_decommission(image, 1)


# requirement: F3
def test_a_broker_that_is_dead_is_decommissioned() -> None:
    image, _ = applied(create("orders", (1, 2, 4)), FenceBroker(NodeId(4), "first"), to=cluster(brokers=4))
    planned_decommission(image, 4)
    image, _ = applied(FenceBroker(NodeId(3), "first"), to=image)
    with pytest.raises(Conflict, match="without broker 4 only 2 brokers can hold replicas"):
        planned_decommission(image, 4)


def admit(broker: int = 0, *, number: int = 1, port: int = 9900, replaces: bool = False) -> AdmitBroker:
    url = f"http://127.0.0.1:{port - 100}"
    return AdmitBroker(f"{number:032x}", NodeId(broker), url, "127.0.0.1", port, None, replaces)


def planned_admission(image: MetadataImage, request: AdmitBroker) -> AdmitBroker:
    command = plan(request, image, PlannerLimits())
    assert isinstance(command, AdmitBroker)
    return command


def admitted(image: MetadataImage, request: AdmitBroker) -> tuple[MetadataImage, BrokerInfo]:
    image, reply = applied(planned_admission(image, request), to=image)
    assert isinstance(reply, BrokerInfo)
    return image, reply


# requirement: F2
def test_an_admitted_broker_has_an_address_and_is_not_alive_until_it_registers() -> None:
    image, broker = admitted(cluster(), admit())
    assert (broker.broker_id, broker.rpc_port, broker.alive, broker.incarnation) == (4, 9900, False, "")
    heard = liveness.decide(image, {}, frozenset({NodeId(4)}), broker_timeout_ms=1000)
    assert heard == [], "being heard is not enough"
    image, reply = applied(register(4), to=image)
    assert isinstance(reply, BrokerInfo)
    assert reply.alive
    assert decode_image(encode_image(image)) == image


def test_the_lowest_id_is_chosen_that_no_broker_has_had() -> None:
    image, _ = applied(register(1), register(2), register(5))
    image, third = admitted(image, admit())
    image, fourth = admitted(image, admit(number=2, port=9901))
    image, sixth = admitted(image, admit(number=3, port=9902))
    assert [third.broker_id, fourth.broker_id, sixth.broker_id] == [3, 4, 6]


def test_a_repeated_request_admits_no_other_broker() -> None:
    image, broker = admitted(cluster(), admit())
    again, same = admitted(image, admit())
    assert same == broker
    assert again is image
    late, reply = applied(structs.replace(admit(), broker_id=NodeId(9)), to=image)
    assert reply == broker, "not even as a command with another id"
    assert late is image
    running, _ = applied(register(4), to=image)
    assert admitted(running, admit())[1].incarnation == "first", "its process goes on"


# requirement: F2
def test_the_id_of_a_live_broker_is_never_given_away() -> None:
    for replaces in (False, True):
        with pytest.raises(Conflict, match=r"broker 3 is alive at 127\.0\.0\.1:9003"):
            planned_admission(cluster(), admit(3, replaces=replaces))
    command = admit(3, replaces=True)
    image, reply = applied(command, to=cluster())
    assert isinstance(reply, Conflict), "nor by a command that was planned_admission before it came back"
    assert image.brokers == cluster().brokers


def test_the_id_of_a_dead_broker_is_given_away_only_on_request() -> None:
    image, _ = applied(create("orders", (1, 2, 3)), FenceBroker(NodeId(3), "first"), to=cluster())
    with pytest.raises(Conflict, match=r"its broker at 127\.0\.0\.1:9003 is down"):
        planned_admission(image, admit(3))
    image, broker = admitted(image, admit(3, replaces=True))
    assert (broker.rpc_port, broker.incarnation) == (9900, "")
    _, refused = applied(register(3, incarnation="second", replaces="first"), to=image)
    assert isinstance(refused, PreconditionFailed), "the former process does not come back"


def test_a_broker_that_has_not_started_yet_keeps_its_id() -> None:
    image, _ = admitted(cluster(), admit(4))
    with pytest.raises(Conflict, match="has been admitted and has not started yet"):
        planned_admission(image, admit(4, number=2, port=9901))
    image, broker = admitted(image, admit(4, number=2, port=9901, replaces=True))
    assert broker.rpc_port == 9901
    image, other = admitted(image, admit(ANY_ID))
    assert other.broker_id == 5, "the first request has lost its broker, and gets another"


def test_a_new_disk_under_an_old_id_is_noticed() -> None:
    image, _ = applied(
        register(4, disk_id="old", replaces=""),
        create("orders", (1, 2, 4)),
        FenceBroker(NodeId(4), "first"),
        to=cluster(),
    )
    image, _ = admitted(image, admit(4, replaces=True))
    image, _ = applied(register(4, incarnation="second", disk_id="new", replaces=""), to=image)
    assert image.topics["orders"].partitions[0].added == (4,), "its replicas begin empty"


def test_a_replaced_broker_is_used_as_any_other() -> None:
    image, _ = applied(DecommissionBroker(NodeId(3)), FenceBroker(NodeId(3), "first"), to=cluster())
    _, broker = admitted(image, admit(3, replaces=True))
    assert not broker.decommissioned
    assert not broker.draining


def test_the_addresses_of_live_brokers_are_their_own() -> None:
    with pytest.raises(Conflict, match=r"broker 2 is alive at 127\.0\.0\.1:9002"):
        planned_admission(cluster(), admit(port=9002))
    image, _ = applied(FenceBroker(NodeId(2), "first"), to=cluster())
    assert planned_admission(image, admit(port=9002)).broker_id == 4


@pytest.mark.parametrize(
    "command",
    [admit(1 << 40), admit(-1), structs.replace(admit(4), admission_id="")],
    ids=["large", "negative", "none"],
)
def test_nonsense_changes_nothing(command: AdmitBroker) -> None:
    with pytest.raises(InvalidRequest):
        planned_admission(cluster(), command)
    image, reply = applied(command, to=cluster())
    assert isinstance(reply, InvalidRequest)
    assert image.brokers == cluster().brokers


def test_no_topic_is_placed_on_a_broker_that_has_not_registered() -> None:
    image, _ = admitted(cluster(), admit())
    request = NewTopic("orders", f"{7:032x}", 12, 3, {})
    command = plan(request, image, PlannerLimits())
    assert isinstance(command, CreateTopic)
    assert all(4 not in row for row in command.placement)
