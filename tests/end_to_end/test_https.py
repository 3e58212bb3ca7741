"""Clients reach brokers with TLS: every URL that a broker gives has the scheme of the request, certificates
are replaced while the broker runs, and a client that began with TLS sends nothing without TLS.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from chaos.cluster import Cluster
from chaos.ports import free_ports
from raftlog import Client, NotSent, Tls
from tests.helpers.certificates import Authority
from tests.helpers.real_cluster import eventually

pytestmark = pytest.mark.e2e

BROKERS = (1, 2, 3)
BENCH = ("bench", "produce", "--topic", "orders", "--seconds", "0.5")


@dataclass
class Secured:
    """Brokers with a listener of each scheme. The plain URL that they advertise leads to ``trap``."""

    cluster: Cluster
    authority: Authority
    ports: dict[int, int]
    trap: list[object]

    def url(self, broker: int) -> str:
        return f"https://127.0.0.1:{self.ports[broker]}"

    @property
    def urls(self) -> str:
        return ",".join(map(self.url, BROKERS))

    @property
    def tls(self) -> Tls:
        return Tls(ca=self.authority.file)

    def ask(self, broker: int, method: str, path: str, body: bytes | None = None) -> tuple[int, str, bytes]:
        """Send one request with TLS; see ``ask``."""
        return ask(self.authority, self.ports[broker], method, path, body)

    def gauge(self, broker: int, name: str) -> float:
        """The value of a metric without labels."""
        _, _, text = self.ask(broker, "GET", "/metrics")
        (line,) = [line for line in text.decode().splitlines() if line.startswith(f"{name} ")]
        return float(line.split()[1])


def ask(
    authority: Authority, port: int, method: str, path: str, body: bytes | None = None
) -> tuple[int, str, bytes]:
    """Send one request with TLS; return the status, the header ``Location`` and the body."""
    context = ssl.create_default_context(cafile=authority.file)
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=context)
    connection.request(method, path, body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    found = answer.status, answer.getheader("Location", ""), answer.read()
    connection.close()
    return found


@contextmanager
def trap() -> Iterator[tuple[int, list[object]]]:
    """A port whose connections are noted; its number and the connections."""
    noted: list[object] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def accept() -> None:
            while True:
                try:
                    connected, address = listening.accept()
                except OSError:
                    return
                noted.append(address)
                connected.close()

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield listening.getsockname()[1], noted
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.fixture
def secured(directory: Path) -> Iterator[Secured]:
    authority = Authority(directory)
    certificate, key = authority.certificate()
    first = free_ports(len(BROKERS))
    ports = {broker: first + broker - 1 for broker in BROKERS}
    cluster = Cluster(directory / "cluster", brokers=len(BROKERS))
    with trap() as (trap_port, noted):
        for broker in BROKERS:
            cluster.add_environment(
                broker,
                {
                    "RAFTLOG_BROKER__HTTP__ADVERTISED_URL": f"http://127.0.0.1:{trap_port}",
                    **https_of(ports[broker], certificate, key),
                },
            )
        with cluster:
            yield Secured(cluster, authority, ports, noted)


# requirement: X3
def test_clients_stay_with_tls(secured: Secured) -> None:
    """Topics, records, groups and transactions, from one URL: leaders and coordinators are found with TLS."""
    with Client(secured.url(1), tls=secured.tls) as client:
        client.topics.create("orders", partitions=6)
        with client.producer("orders", acks="every") as producer:
            for number in range(60):
                producer.send(f"{number}", key=f"{number}")
        with client.consumer("readers", ["orders"], reset="earliest") as consumer:
            got = {message.value for _, message in zip(range(60), consumer, strict=False)}
        assert got == {f"{number}".encode() for number in range(60)}
        with client.producer(transactional_id="t") as producer, producer.transaction() as transaction:
            transaction.send("last", topic="orders")
        assert {broker.http for broker in client.brokers.list()} == {secured.url(each) for each in BROKERS}
        leader = client.topics.partitions("orders")[0].leader
    other = next(broker for broker in BROKERS if broker != leader)
    records = json.dumps({"records": [{"value": "x"}]}).encode()
    status, location, _ = secured.ask(
        other, "POST", "/v1/topics/orders/partitions/0/records?route=redirect", records
    )
    assert (status, location) == (
        307,
        f"{secured.url(leader or 0)}/v1/topics/orders/partitions/0/records?route=redirect",
    )
    status, _, body = secured.ask(other, "GET", "/v1/groups/readers/coordinator")
    assert json.loads(body)["http"].startswith("https://"), body
    assert secured.trap == [], "a client asked without TLS"


def test_brokers_without_tls_are_reached_through_others(directory: Path) -> None:
    """Only broker 1 has a listener with TLS: it forwards requests for the partitions that others lead."""
    authority = Authority(directory)
    certificate, key = authority.certificate()
    port = free_ports(1)
    cluster = Cluster(directory / "cluster", brokers=len(BROKERS))
    cluster.add_environment(1, https_of(port, certificate, key))
    with cluster, Client(f"https://127.0.0.1:{port}", tls=Tls(ca=authority.file)) as client:
        client.topics.create("orders", partitions=6)
        leaders = {each.leader for each in client.topics.partitions("orders")}
        assert leaders - {1}, "each broker leads some partitions"
        for partition in range(6):
            client.send("orders", "x", partition=partition)
        read = [[*client.partition("orders", each).read(0, limit=1)] for each in range(6)]
        assert [len(found) for found in read] == [1] * 6


def https_of(port: int, certificate: Path, key: Path) -> dict[str, str]:
    """The settings of a listener with TLS, as variables."""
    return {
        "RAFTLOG_BROKER__HTTPS__PORT": str(port),
        "RAFTLOG_BROKER__HTTPS__CERTIFICATE_FILE": str(certificate),
        "RAFTLOG_BROKER__HTTPS__KEY_FILE": str(key),
    }


def test_the_command_line_reads_the_file_of_the_authority(secured: Secured) -> None:
    variables = {**os.environ, "RAFTLOG_URL": secured.urls, "RAFTLOG_CA_FILE": str(secured.authority.file)}
    for command in (
        ("topic", "create", "orders", "--partitions", "1"),
        ("produce", "orders"),
        ("topic", "list"),
        ("cluster", "health"),
        BENCH,
    ):
        done = subprocess.run(
            [sys.executable, "-m", "raftlog", *command],
            env=variables,
            input="one\n",
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
    assert secured.trap == [], "a command asked without TLS"
    variables.pop("RAFTLOG_CA_FILE")
    done = subprocess.run(
        [sys.executable, "-m", "raftlog", "topic", "list"],
        env=variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    assert "its TLS certificate is not accepted" in done.stderr


def test_certificates_are_replaced_while_a_broker_runs(secured: Secured, directory: Path) -> None:
    with Client(secured.url(1), tls=secured.tls) as before:
        before.topics.create("orders", partitions=1)
        others = Authority(directory, "others")
        chain, key = others.certificate()
        own_chain, own_key = (secured.authority.directory / name for name in ("broker.pem", "broker.key"))

        own_chain.write_bytes(chain.read_bytes())  # and its key does not follow
        os.kill(secured.cluster.pid(1), signal.SIGHUP)
        eventually(
            lambda: secured.gauge(1, "raftlog_tls_files_refused") == 1,
            what="the pair that does not match is refused",
        )
        assert "it is the key of another certificate" in secured.cluster.log_text(1)

        own_key.write_bytes(key.read_bytes())
        os.kill(secured.cluster.pid(1), signal.SIGHUP)
        eventually(
            lambda: "the TLS files are loaded" in secured.cluster.log_text(1), what="the new files are loaded"
        )
        assert before.topics.list(), "an open connection goes on"
    with Client(secured.url(1), tls=Tls(ca=others.file)) as after:
        assert after.topics.list()
    with Client(secured.url(1), tls=secured.tls) as late, pytest.raises(NotSent, match="not accepted"):
        late.topics.list()
    secured.authority = others
    assert secured.gauge(1, "raftlog_tls_files_refused") == 0


def test_a_broker_can_serve_with_tls_alone(directory: Path) -> None:
    """The plain listener is off; a broker whose key does not match does not start and says why."""
    authority = Authority(directory)
    certificate, key = authority.certificate()
    port = free_ports(1)
    cluster = Cluster(directory / "cluster", brokers=1)
    plain = {
        "RAFTLOG_BROKER__HTTP__ENABLED": "false",
        **https_of(port, certificate, key),
    }
    with ended_at_last(cluster):
        cluster.launch(1, environment=plain)
        eventually(lambda: ask(authority, port, "GET", "/healthz/ready")[0] == 200, what="a ready broker")
        with Client(f"https://127.0.0.1:{port}", tls=Tls(ca=authority.file)) as client:
            client.topics.create("orders", partitions=1)
            client.send("orders", "one")
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", int(cluster.url(1).rpartition(":")[2])))
        assert cluster.stop(1) == 0
        other, _ = Authority(directory, "other").certificate()
        cluster.launch(1, environment={**plain, "RAFTLOG_BROKER__HTTPS__CERTIFICATE_FILE": str(other)})
        status, log = cluster.ended(1)
        assert status == 1
        assert "https.key_file" in log


@contextmanager
def ended_at_last(cluster: Cluster) -> Iterator[None]:
    """Kill all running brokers of a cluster that was not entered."""
    try:
        yield
    finally:
        for broker in cluster.running:
            cluster.kill(broker)
