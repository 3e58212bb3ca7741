"""Which brokers may join, and what the metadata makes of them."""

from __future__ import annotations

import pytest
from msgspec import structs

from partitions.metadata import liveness
from partitions.metadata.admission import ANY_ID
from partitions.metadata.commands import AdmitBroker, CreateTopic, DecommissionBroker, FenceBroker
from partitions.metadata.image import BrokerInfo, MetadataImage
from partitions.metadata.machine import decode_image, encode_image
from partitions.metadata.planner import NewTopic, PlannerLimits, plan
from raftlog.errors import Conflict, InvalidRequest, PreconditionFailed
from raftlog.types import NodeId
from tests.helpers.metadata_images import applied, cluster, create, register


def admit(broker: int = 0, *, number: int = 1, port: int = 9900, replaces: bool = False) -> AdmitBroker:
    url = f"http://127.0.0.1:{port - 100}"
    return AdmitBroker(f"{number:032x}", NodeId(broker), url, "127.0.0.1", port, None, replaces)


def planned(image: MetadataImage, request: AdmitBroker) -> AdmitBroker:
    command = plan(request, image, PlannerLimits())
    assert isinstance(command, AdmitBroker)
    return command


def admitted(image: MetadataImage, request: AdmitBroker) -> tuple[MetadataImage, BrokerInfo]:
    image, reply = applied(planned(image, request), to=image)
    assert isinstance(reply, BrokerInfo)
    return image, reply


# requirement: F2
def test_an_admitted_broker_has_an_address_and_is_not_alive_until_it_registers() -> None:
    image, broker = admitted(cluster(), admit())
    assert (broker.broker_id, broker.rpc_port, broker.alive, broker.incarnation) == (4, 9900, False, "")
    heard = liveness.decide(image, {}, frozenset({NodeId(4)}), dead_timeout_ms=1000)
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
            planned(cluster(), admit(3, replaces=replaces))
    command = admit(3, replaces=True)
    image, reply = applied(command, to=cluster())
    assert isinstance(reply, Conflict), "nor by a command that was planned before it came back"
    assert image.brokers == cluster().brokers


def test_the_id_of_a_dead_broker_is_given_away_only_on_request() -> None:
    image, _ = applied(create("orders", (1, 2, 3)), FenceBroker(NodeId(3), "first"), to=cluster())
    with pytest.raises(Conflict, match=r"its broker at 127\.0\.0\.1:9003 is down"):
        planned(image, admit(3))
    image, broker = admitted(image, admit(3, replaces=True))
    assert (broker.rpc_port, broker.incarnation) == (9900, "")
    _, refused = applied(register(3, incarnation="second", replaces="first"), to=image)
    assert isinstance(refused, PreconditionFailed), "the former process does not come back"


def test_a_broker_that_has_not_started_yet_keeps_its_id() -> None:
    image, _ = admitted(cluster(), admit(4))
    with pytest.raises(Conflict, match="has been admitted and has not started yet"):
        planned(image, admit(4, number=2, port=9901))
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
        planned(cluster(), admit(port=9002))
    image, _ = applied(FenceBroker(NodeId(2), "first"), to=cluster())
    assert planned(image, admit(port=9002)).broker_id == 4


@pytest.mark.parametrize(
    "command",
    [admit(1 << 40), admit(-1), structs.replace(admit(4), admission_id="")],
    ids=["large", "negative", "none"],
)
def test_nonsense_changes_nothing(command: AdmitBroker) -> None:
    with pytest.raises(InvalidRequest):
        planned(cluster(), command)
    image, reply = applied(command, to=cluster())
    assert isinstance(reply, InvalidRequest)
    assert image.brokers == cluster().brokers


def test_no_topic_is_placed_on_a_broker_that_has_not_registered() -> None:
    image, _ = admitted(cluster(), admit())
    request = NewTopic("orders", f"{7:032x}", 12, 3, {})
    command = plan(request, image, PlannerLimits())
    assert isinstance(command, CreateTopic)
    assert all(4 not in row for row in command.placement)
