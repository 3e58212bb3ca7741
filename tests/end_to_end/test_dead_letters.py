"""Dead letters on real brokers: people list them, try them again and discard them, through any broker."""

from __future__ import annotations

import json
import threading
from functools import partial

import pytest

from chaos.cluster import Cluster
from raftlog import Client, Message, TopicNotFound
from raftlog.records.builder import Record
from raftlog.records.failures import FailedRecord
from raftlog.testing.waits import LIMIT_S
from raftlog.wire import media_types
from raftlog.wire import records as record_operations
from tests.helpers.command_line import run
from tests.helpers.dead_letters import DEAD, PATH, RETRY, batch, ids, letter
from tests.helpers.real_cluster import Answer, create_topic, eventually, read_all, settled

pytestmark = pytest.mark.e2e

PARTITIONS = 3


def make_topics(cluster: Cluster) -> None:
    compacted = {"cleanup_policy": "compact", "message_timestamp_type": "CreateTime"}
    create_topic(cluster.urls[0], "orders", PARTITIONS)
    create_topic(cluster.urls[0], DEAD, PARTITIONS, **compacted)
    create_topic(cluster.urls[0], RETRY, PARTITIONS)


def add(cluster: Cluster, partition: int, *records: FailedRecord | Record) -> None:
    """Append to the dead-letter topic, as a worker does. What is repeated is stored once."""
    sent = {"Content-Type": media_types.BATCH}
    path = record_operations.FETCH.at(topic=DEAD, partition=partition)
    url = cluster.urls[partition]
    producer = settled(url, "POST", record_operations.CREATE.path).number("producer_id")
    answer = settled(url, "POST", path, batch(*records, producer_id=producer), sent)
    assert answer.status == 200, answer


def patient_client(cluster: Cluster) -> Client:
    """A client that repeats a request only when its answer is lost: a redrive that is repeated finds less."""
    limit = f"{LIMIT_S:g}s"
    return Client(cluster.bootstrap, request_timeout=limit, retry_timeout=limit)


def open_ids(answer: Answer) -> list[object]:
    assert answer.status == 200, answer
    return [row["id"] for row in answer.rows("items")]


def redriven(cluster: Cluster) -> list[object]:
    """The values in the retry topic."""
    return [value for n in range(PARTITIONS) for _, value in read_all(cluster.urls[0], RETRY, n)]


# requirement: A7
def test_people_decide_about_dead_letters(cluster: Cluster) -> None:
    for method, path in (("GET", PATH), ("POST", f"{PATH}:redrive"), ("POST", f"{PATH}:discard")):
        missing = settled(cluster.urls[1], method, path, {"all": True} if method == "POST" else None)
        assert (missing.status, missing.code) == (404, "topic_not_found")
    make_topics(cluster)
    foreign = Record(b"not a dead letter", b"k")
    add(cluster, 0, letter(1, value=b"a"), foreign, letter(2, value=b"b", reason="TimeoutError: late"))
    add(
        cluster,
        1,
        letter(1, partition=1, value=b"c", key=b"u2"),
        letter(1, partition=1, value=b"c2", key=b"u2"),
    )
    add(cluster, 2, *(letter(n, partition=2, value=b"d%d" % n, reason="KeyError: 'x'") for n in range(5)))
    everything = [*ids([1, 2]), *ids([1], 1), *ids(range(5), 2)]

    for url in cluster.urls:  # brokers that lead some of the partitions
        answer = settled(url, "GET", PATH)
        assert (open_ids(answer), answer.number("foreign"), answer.json["next_page_token"]) == (
            everything,
            1,
            None,
        )
        assert open_ids(settled(url, "GET", f"{PATH}?reason=LATE")) == ids([2])
        assert open_ids(settled(url, "GET", f"{PATH}?key=u2")) == ids([1], 1)
        of_two = settled(url, "GET", f"{PATH}?id=orders/2/4&id=orders/0/1")
        assert open_ids(of_two) == [*ids([1]), *ids([4], 2)]
    wrong = settled(cluster.urls[0], "POST", f"{PATH}:discard", {"limit": 3})
    assert (wrong.status, wrong.json["field"]) == (422, "all")

    dry = settled(cluster.urls[0], "POST", f"{PATH}:redrive", {"all": True, "dry_run": True})
    assert (open_ids(dry), redriven(cluster)) == (everything, [])
    with patient_client(cluster) as client:
        _redrive_and_discard(cluster, client)


def _redrive_and_discard(cluster: Cluster, client: Client) -> None:
    letters = client.dead_letters
    for wanted in (ids([1], 1), []):  # the second as after a lost answer
        assert [each.id for each in letters.redrive("orders", "mail", ids=ids([1], 1))] == wanted
    assert redriven(cluster) == ["c2"]
    assert [each.value for each in letters.list("orders", "mail", reason="late")] == [b"b"]
    output, _ = run(
        cluster,
        "dead-letter",
        "redrive",
        "orders",
        "-g",
        "mail",
        "--reason",
        "keyerror",
        "-n",
        "2",
        "-o",
        "json",
    )
    assert [row["id"] for row in json.loads(output)] == ids([0, 1], 2)
    assert redriven(cluster) == ["c2", "d0", "d1"]
    _, errors = run(
        cluster, "dead-letter", "discard", "orders", "--group", "mail", "--key", "u1", "--limit", "4"
    )
    assert "4 discarded" in errors
    for broker in cluster.brokers:
        cluster.kill(broker)
        cluster.start(broker)
    assert [each.id for each in letters.list("orders", "mail")] == ids([4], 2)
    output, _ = run(cluster, "dead-letter", "describe", "orders", "orders/2/4", "--group", "mail")
    assert output.endswith(b"\nd4\n")
    with pytest.raises(TopicNotFound):
        letters.list("orders", "other")
    _, errors = run(cluster, "dead-letter", "list", "orders", "--group", "other", code=1)
    assert "`raftlog topic list`" in errors


# requirement: A7 D2
def test_a_record_that_fails_at_once_is_never_lost_by_a_redrive(unbroken: Cluster) -> None:
    create_topic(unbroken.urls[0], "orders", PARTITIONS)
    handled, is_mended = set[bytes](), threading.Event()
    with patient_client(unbroken) as client, patient_client(unbroken) as operator:
        letters = operator.dead_letters

        @client.worker(
            "orders", group="mail", dead_letter=True, concurrency=4, order="none", session_timeout="10m"
        )
        def handle(message: Message) -> None:
            if not is_mended.is_set():
                raise LookupError("no such customer")
            handled.add(message.value)

        worker = threading.Thread(target=client.run)
        worker.start()
        try:
            sent = [client.send("orders", str(number), partition=number % PARTITIONS) for number in range(30)]
            places = [(receipt.partition, receipt.offset) for receipt in sent]

            def are_all_open(redrives: str = "") -> bool:
                wanted = sorted(f"orders/{partition}/{offset}{redrives}" for partition, offset in places)
                return sorted(each.id for each in letters.list("orders", "mail")) == wanted

            eventually(are_all_open, what="all records are dead letters")
            for redrives in range(1, 11):
                assert len(letters.redrive("orders", "mail", all=True)) == 30
                eventually(partial(are_all_open, f"#{redrives}"), what="all failed again")
            is_mended.set()
            assert len(letters.redrive("orders", "mail", all=True)) == 30
            eventually(lambda: len(handled) == 30, what="all records are handled")
            assert letters.list("orders", "mail") == []
        finally:
            client.stop()
            worker.join(LIMIT_S)
