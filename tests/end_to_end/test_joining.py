"""Brokers that the cluster was not created with join it, take their share, and leave, under load."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.addresses import RPC_PORT_STEP
from broker.cluster_files import SECRET_NAME, read_secret, settings_path
from chaos.cluster import Cluster
from chaos.ports import free_ports
from chaos.workload import Workload
from raftlog import Client
from raftlog.errors import RaftlogError
from raftlog.testing.waits import LIMIT_S
from raftlog.wire.bodies import PartitionDescription
from tests.helpers.command_line import health, run
from tests.helpers.judged_load import SEED, judge
from tests.helpers.real_cluster import create_topic, eventually, produce_surely, settled, values_of

pytestmark = pytest.mark.e2e


@pytest.fixture
def three(directory: Path) -> Iterator[Cluster]:
    """Three brokers of the test's own."""
    with Cluster(directory, brokers=3) as brokers:
        yield brokers


def token_of(cluster: Cluster) -> str:
    return run(cluster, "cluster", "token")[0].decode().strip()


def join_arguments(cluster: Cluster, secret: Path, *more: str) -> list[str]:
    host = f"127.0.0.1:{free_ports(1)}"
    where = ["--host", host, "--data", str(cluster.directory)]
    return ["cluster", "join", token_of(cluster), "--secret-file", str(secret), *where, *more]


def joined(cluster: Cluster, *more: str) -> int:
    """A new broker, in the settings of the cluster and running; its id."""
    arguments = join_arguments(cluster, cluster.directory / SECRET_NAME, *more)
    output, notes = run(cluster, *arguments)
    shown = re.fullmatch(rb"broker=(\d+) host=127\.0\.0\.1 http=\S+ directory=(\S+)\n", output)
    assert shown is not None, output
    assert "raftlog serve --config" in notes
    broker = cluster.add(Path(shown[2].decode()) / "raftlog.toml")
    assert broker == int(shown[1])
    cluster.start(broker)
    return broker


def with_other_ports(cluster: Cluster) -> None:
    """All brokers get other ports, in all files that name them; none of them runs."""
    count = len(cluster.brokers)
    first, others = free_ports(count), dict[int, int]()
    for number, url in enumerate(cluster.urls):
        port = int(url.rpartition(":")[2])
        others |= {port: first + number, port + RPC_PORT_STEP: first + number + RPC_PORT_STEP}
    for broker in cluster.brokers:
        path = settings_path(cluster.directory, broker)
        text = re.sub(
            r"^port = (\d+)$", lambda line: f"port = {others[int(line[1])]}", path.read_text(), flags=re.M
        )
        path.write_text(text)
        assert cluster.add(path) == broker


def without_its_disk(cluster: Cluster, broker: int) -> None:
    """A broker starts again, with its settings of old."""
    cluster.kill(broker)
    data = cluster.data_directory(broker)
    data.rename(data.with_name("lost"))
    cluster.start(broker)


def voters(client: Client) -> set[int]:
    try:
        return {*client.cluster.describe().metadata_voters}
    except RaftlogError:
        return set()


def voters_become(client: Client, *wanted: int) -> None:
    eventually(lambda: voters(client) == {*wanted}, what=f"voters {wanted}")


def moved(client: Client, partition: int, *brokers: int) -> PartitionDescription:
    """The partition, whose move to these brokers has begun. Repeated, as its outcome may be unknown."""

    def attempt() -> PartitionDescription | None:
        try:
            return client.partitions.set_replicas("orders", partition, brokers)
        except RaftlogError:
            return None

    return eventually(attempt, what=f"a move of partition {partition} to {brokers}")


def made(client: Client, topic: str, replication_factor: int) -> None:
    """Create a topic, however often that takes."""

    def attempt() -> bool:
        try:
            client.topics.create(topic, partitions=1, replication_factor=replication_factor, exist_ok=True)
        except RaftlogError:
            return False
        return True

    eventually(attempt, what=f"the topic {topic}")


def is_alive(client: Client, broker: int) -> bool:
    """Whether the broker that answers knows this one, and counts it as alive."""
    return any(one.broker_id == broker and one.alive for one in client.brokers.list())


def rows(client: Client, topic: str) -> list[set[int]]:
    """The brokers of each partition whose move has ended and whose replicas are all in sync."""
    try:
        return [
            {*one.replicas} if one.reassignment is None and {*one.in_sync} == {*one.replicas} else set()
            for one in client.topics.partitions(topic)
        ]
    except RaftlogError:
        return []


def logs(cluster: Cluster, broker: int) -> list[Path]:
    """The folders of the replicas of ``orders`` on a broker."""
    return [*cluster.data_directory(broker).glob("orders-*/Partition-*")]


# requirement: F2
# requirement: F3
def test_broker_4_joins_takes_the_replica_of_broker_1_and_is_removed_again(three: Cluster) -> None:
    print(f"seed {SEED} (CHAOS_SEED)")
    create_topic(three.urls[0], "orders", 3)
    with Client(three.bootstrap) as client:
        with Workload(three.urls, "orders", partitions=3, seed=SEED) as load:
            load.wait_for_acknowledged(100)
            assert joined(three) == 4
            eventually(lambda: is_alive(client, 4), what="broker 4 is heard")
            begun = moved(client, 2, 2, 3, 4)
            assert 1 in begun.replicas or 4 in begun.in_sync, "broker 1 is needed until 4 has caught up"
            eventually(lambda: rows(client, "orders")[2:] == [{2, 3, 4}], what="the replicas of F2")
            eventually(lambda: len(logs(three, 1)) == 2, what="no copy left on broker 1")
            assert {*client.cluster.describe().metadata_voters} == {1, 2, 3}
            load.wait_for_acknowledged(100)

            left = json.loads(
                run(three, "broker", "decommission", "4", "--wait", f"{LIMIT_S:g}s", "-o", "json")[0]
            )
            assert left["replicas"] == 0
            eventually(lambda: rows(client, "orders") == [{1, 2, 3}] * 3, what="the replicas before F2")
            eventually(lambda: not logs(three, 4), what="no copy left on broker 4")
            three.stop(4)
            load.wait_for_acknowledged(100)
        judge(load)
        eventually(lambda: not client.brokers.describe(4).alive, what="broker 4 is fenced")

        eventually(lambda: health(three)[1].get("problems") == [], what="a cluster without problems")


# requirement: F3
def test_the_voters_follow_from_three_to_five_to_three_and_the_first_brokers_can_go(three: Cluster) -> None:
    print(f"seed {SEED} (CHAOS_SEED)")
    create_topic(three.urls[0], "orders", 3)
    with Workload(three.urls, "orders", partitions=3, seed=SEED) as load, Client(three.bootstrap) as client:
        load.wait_for_acknowledged(100)
        assert [joined(three), joined(three)] == [4, 5]
        voters_become(client, 1, 2, 3, 4, 5)
        for broker in (1, 2):
            run(three, "broker", "decommission", str(broker), "--wait", f"{LIMIT_S:g}s")
        voters_become(client, 3, 4, 5)
        load.wait_for_acknowledged(100)
        for broker in (1, 2):
            three.stop(broker)
        with Client([three.url(broker) for broker in (3, 4, 5)]) as rest:
            made(rest, "later", 3)  # the metadata group goes on without them
            three.kill(4)
            made(rest, "latest", 1)  # and tolerates one more failure
            three.start(4)
            without_its_disk(three, 3)  # its file names brokers 1 and 2 only, which are gone
            three.start(1, 2)
    judge(load)


# requirement: F2
def test_a_joined_broker_starts_again_with_its_disk_and_without_it(three: Cluster) -> None:
    create_topic(three.urls[0], "orders")
    with Client(three.bootstrap) as client:
        broker = joined(three)
        moved(client, 0, 1, 2, broker)
        eventually(lambda: rows(client, "orders") == [{1, 2, broker}], what="its replica")
        produce_surely(three.urls, "orders", ["a", "b"])
        three.kill(broker)
        three.start(broker)
        without_its_disk(three, broker)
        eventually(lambda: rows(client, "orders") == [{1, 2, broker}], what="its replica is back")
        assert values_of(three, "orders") == ["a", "b"]
        bootstrap = {three.get("/v1/cluster", broker=each)["cluster_id"] for each in three.running}
        assert len(bootstrap) == 1


def committed(cluster: Cluster, offset: int) -> int:
    """Commit an offset of a group, and read it at another broker."""
    path = "/v1/groups/readers/offsets"
    body = {"offsets": [{"topic": "orders", "partition": 0, "offset": offset}]}
    answer = settled(cluster.urls[0], "PUT", path, body)
    assert answer.status == 204, answer
    shown = settled(cluster.urls[-1], "GET", path)
    assert shown.status == 200, shown
    return int(str(shown.rows("items")[0]["committed_offset"]))


# requirement: F2
def test_all_brokers_of_a_grown_cluster_move_at_once(directory: Path) -> None:
    """Two have joined the first one. Each file names the first brokers, the metadata all of them."""
    with Cluster(directory, brokers=1) as grown:
        create_topic(grown.urls[0], "orders", 1, replication_factor=1)
        produce_surely(grown.urls, "orders", ["a", "b"])
        assert committed(grown, 1) == 1
        assert [joined(grown), joined(grown)] == [2, 3]
        with Client(grown.bootstrap) as client:
            voters_become(client, 1, 2, 3)
            made(client, "before", 3)
        before = grown.urls
        assert {*grown.stop_all()} == {0}

        with_other_ports(grown)
        assert not {*before} & {*grown.urls}
        grown.start()
        produce_surely(grown.urls, "orders", ["c"])
        produce_surely(grown.urls, "before", ["d"])
        assert values_of(grown, "orders") == ["a", "b", "c"]
        assert committed(grown, 3) == 3
        with Client(grown.bootstrap) as client:
            eventually(
                lambda: [one.http for one in client.brokers.list()] == grown.urls, what="new addresses"
            )
            eventually(lambda: all(is_alive(client, broker) for broker in (1, 2, 3)), what="three brokers")
            eventually(lambda: rows(client, "before") == [{1, 2, 3}], what="all replicas in sync")
            made(client, "after", 3)


# requirement: F2
def test_who_must_not_join_is_told_why_and_changes_nothing(three: Cluster, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.secret"
    wrong.write_text("ab" * 32)
    wrong.chmod(0o600)
    secret = three.directory / SECRET_NAME
    with Client(three.bootstrap) as client:
        _, notes = run(three, *join_arguments(three, wrong), code=1)
        assert "is not the secret of the cluster" in notes
        _, notes = run(
            three, *join_arguments(three, secret, "--broker", "9", "--data", str(tmp_path)), code=0
        )
        _, notes = run(
            three, *join_arguments(three, secret, "--broker", "9", "--data", str(tmp_path / "b")), code=1
        )
        assert "has been admitted and has not started yet" in notes
        _, notes = run(
            three,
            *join_arguments(three, secret, "--broker", "3", "--replace", "--data", str(tmp_path / "c")),
            code=1,
        )
        assert "broker 3 is alive" in notes
        _, notes = run(three, *join_arguments(three, secret, "--broker", "2"), code=1)
        assert "exists" in notes, "a folder of a broker is not written into"
        assert not (tmp_path / "b").exists()
        assert [broker.broker_id for broker in client.brokers.list() if broker.alive] == [1, 2, 3]
        create_topic(three.urls[0], "orders", 3)


def test_a_broker_with_another_secret_never_gets_in(three: Cluster) -> None:
    output, _ = run(three, *join_arguments(three, three.directory / SECRET_NAME))
    broker = three.add(settings_path(three.directory, 4))
    secret = settings_path(three.directory, broker).with_name(SECRET_NAME)
    assert read_secret(secret) == read_secret(three.directory / SECRET_NAME)
    secret.write_text("ab" * 32)
    three.launch(broker)
    eventually(lambda: "wrong_secret" in three.log_text(broker) or None, what="a refusal in its log")
    assert not three.is_ready(broker)
    assert b"broker=4" in output
    eventually(
        lambda: "the brokers must reach this broker at 127.0.0.1" in three.log_text(broker) or None,
        what="the reason why it does not begin",
    )
    create_topic(three.urls[0], "orders", 3)
