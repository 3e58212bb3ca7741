"""Network namespaces for brokers: faults lose the packets that they name, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from broker.addresses import Machine
from broker.cluster_files import create_machines
from chaos.cluster import Cluster
from chaos.harness.namespaces import Flow, Namespaces, NamespacesFailed, missing
from raftlog.testing.waits import LIMIT_S
from tests.helpers.hub import ROOT, hub_command, in_hub, namespace_path, socket_in
from tests.helpers.real_cluster import (
    create_topic,
    eventually,
    partitions_of,
    produce,
    produce_surely,
    read_all,
)

pytestmark = pytest.mark.e2e

ARRIVAL_S = 0.3  # long after a packet between two namespaces has arrived
WAIT_S = LIMIT_S  # for what must arrive
ESTABLISHED = 1  # tcpi_state


class Host:
    """A datagram socket, and a listening one, in a broker's namespace."""

    def __init__(self, network: Namespaces, broker: int) -> None:
        self.datagrams = socket_in(network, broker, socket.SOCK_DGRAM)
        self.listener = socket_in(network, broker, socket.SOCK_STREAM)
        self.listener.listen()
        self._network, self._broker = network, broker

    def send(self, other: Host, count: int) -> None:
        """Send datagrams."""
        for _ in range(count):
            self.datagrams.sendto(b"x", other.datagrams.getsockname())

    def received(self, expected: int = 0) -> int:
        """Datagrams that arrive; it waits longer for those that are expected."""
        found = 0
        with suppress(TimeoutError):
            while True:
                self.datagrams.settimeout(WAIT_S if found < expected else ARRIVAL_S)
                self.datagrams.recv(1)
                found += 1
        return found

    def connect(
        self, listener: socket.socket, *, connect_s: float = WAIT_S
    ) -> tuple[socket.socket, socket.socket]:
        """Both ends of a new connection to a listener; ours first."""
        ours = socket_in(self._network, self._broker, socket.SOCK_STREAM)
        ours.settimeout(connect_s)
        ours.connect(listener.getsockname())
        theirs, _ = listener.accept()
        ours.settimeout(WAIT_S)
        theirs.settimeout(WAIT_S)
        return ours, theirs


@contextmanager
def two_hosts() -> Iterator[tuple[Namespaces, Host, Host]]:
    """Two namespaces that have exchanged packets."""
    with Namespaces([1, 2]) as network:
        one, two = Host(network, 1), Host(network, 2)
        one.send(two, 1)
        two.send(one, 1)
        assert (one.received(1), two.received(1)) == (1, 1)
        yield network, one, two


def arrives(sender: socket.socket, receiver: socket.socket, what: bytes, *, within_s: float) -> bool:
    """Whether bytes sent now arrive."""
    sender.sendall(what)
    receiver.settimeout(within_s)
    try:
        got = receiver.recv(len(what))
    except TimeoutError:
        return False
    assert got == what, f"{got!r} arrived instead of {what!r}"
    return True


@in_hub
def test_drop_loses_packets_of_one_direction_and_counts_them() -> None:
    with two_hosts() as (network, one, two):
        ours, theirs = one.connect(two.listener)
        drop = network.drop(Flow(source=network.address(1), target=network.address(2)))
        one.send(two, 10)
        two.send(one, 10)
        assert (one.received(10), two.received()) == (10, 0)
        assert drop.packets() == 10
        assert arrives(theirs, ours, b"back", within_s=WAIT_S)
        assert not arrives(ours, theirs, b"there", within_s=ARRIVAL_S)
        assert drop.stop() > 10  # the repetitions of TCP, too
        assert drop.stop() == drop.packets()
        theirs.settimeout(WAIT_S)
        assert theirs.recv(5) == b"there"  # the connection did not notice
        one.send(two, 10)
        assert two.received(10) == 10


@in_hub
def test_ports_limit_a_drop() -> None:
    with two_hosts() as (network, one, two):
        port_of_one, port_of_two = one.datagrams.getsockname()[1], two.datagrams.getsockname()[1]
        drops = [
            network.drop(Flow(source_port=port_of_one, target_port=port_of_two)),
            network.drop(Flow(target=network.address(2), target_port=two.listener.getsockname()[1])),
        ]
        one.send(two, 3)
        two.send(one, 3)
        assert (one.received(3), two.received()) == (3, 0)
        two.connect(one.listener)
        with pytest.raises(TimeoutError):
            one.connect(two.listener, connect_s=2)
        assert drops[0].stop() == 3
        assert drops[1].stop() > 0
        one.connect(two.listener)


@in_hub
def test_connections_between_broker_and_hub_are_dropped_in_either_direction() -> None:
    with two_hosts() as (network, one, two), socket.create_server((network.hub_address, 0)) as proxy:
        port = proxy.getsockname()[1]
        ours, theirs = one.connect(proxy)
        drop = network.drop(Flow(source=network.address(1), target=network.hub_address, target_port=port))
        assert arrives(theirs, ours, b"back", within_s=WAIT_S)
        assert not arrives(ours, theirs, b"there", within_s=ARRIVAL_S)
        two.connect(proxy)
        assert drop.stop() > 0
        theirs.settimeout(WAIT_S)
        assert theirs.recv(5) == b"there"
        drop = network.drop(Flow(source=network.hub_address, source_port=port, target=network.address(1)))
        assert not arrives(theirs, ours, b"back", within_s=ARRIVAL_S)
        assert drop.stop() > 0
        ours.settimeout(WAIT_S)
        assert ours.recv(4) == b"back"


@in_hub
def test_percent_loses_a_part() -> None:
    with two_hosts() as (network, one, two):
        drop = network.drop(Flow(source=network.address(1)), percent=30)
        got = 0
        for sent in range(100, 1001, 100):  # few at a time: a full receive buffer also loses datagrams
            one.send(two, 100)
            got += two.received(sent - drop.packets() - got)
        lost = drop.stop()
        assert lost + got == 1000, (lost, got)
        assert 150 < lost < 450, lost  # ten standard deviations
        for percent in (0, 101):
            with pytest.raises(NamespacesFailed, match="choose 1 to 100"):
                network.drop(Flow(), percent)


@in_hub
def test_two_drops_of_the_same_packets_count_them_both_and_end_one_by_one() -> None:
    with two_hosts() as (network, one, two):
        wide, narrow = network.drop(Flow()), network.drop(Flow(source=network.address(1)))
        one.send(two, 5)
        assert two.received() == 0
        assert wide.stop() == 5, wide.packets()
        one.send(two, 5)
        assert two.received() == 0
        assert narrow.stop() == 10, narrow.packets()
        one.send(two, 5)
        assert two.received(5) == 5


@in_hub
def test_unplug_is_silent_and_connections_stay_open() -> None:
    with two_hosts() as (network, one, two):
        ours, theirs = one.connect(two.listener)
        network.unplug(1)
        assert not arrives(ours, theirs, b"there", within_s=1)
        assert not arrives(theirs, ours, b"back", within_s=1)
        for end in (ours, theirs):
            assert end.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1) == bytes([ESTABLISHED])
        network.plug(1)
        ours.settimeout(WAIT_S)
        theirs.settimeout(WAIT_S)
        assert theirs.recv(5) == b"there"
        assert ours.recv(4) == b"back"


def processes_in(*namespaces: int) -> list[int]:
    """Processes of network namespaces, given by inode; the kernel reuses the inodes of ended namespaces."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "ns/net").stat().st_ino in namespaces:
                found.append(int(process.name))
    return found


def alive(pids: list[int]) -> list[int]:
    """Those of these processes that have not ended."""
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def inode(path: str) -> int:
    """What identifies a namespace while it exists."""
    return os.stat(path).st_ino


def start_sleep(*prefix: str) -> subprocess.Popen[bytes]:
    """A process that does not end by itself, nor by the signals of a terminal."""
    return subprocess.Popen([*prefix, "sleep", "1000"], stdout=subprocess.DEVNULL, start_new_session=True)


@in_hub
def test_an_ended_network_leaves_nothing_behind() -> None:
    own = start_sleep()
    try:
        for _ in range(2):  # also: another network may follow in the same hub
            with Namespaces([1, 2]) as network:
                inside = start_sleep(*network.command(1))
                inodes = [inode(namespace_path(network, broker)) for broker in (1, 2)]
                eventually(lambda: inside.pid in processes_in(*inodes), what="a sleep inside")  # noqa: B023
                pids = processes_in(*inodes)
                assert len(pids) >= 3, "two holders and a sleep"
            assert inside.wait(WAIT_S) == -signal.SIGKILL
            assert alive(pids) == []
            assert [name for _, name in socket.if_nameindex()] == ["lo"]
            assert sorted(processes_in(inode("/proc/self/ns/net"))) == sorted([os.getpid(), own.pid])
            assert own.poll() is None, "a process of the hub was killed"
    finally:
        own.kill()
        own.wait()


def wait_to_be_killed() -> None:
    """A harness with processes in all namespaces; it prints these."""
    with Namespaces([1, 2]) as network:
        start_sleep()
        for broker in network.brokers:
            start_sleep(*network.command(broker))
        paths = ["/proc/self/ns/net", *(namespace_path(network, broker) for broker in network.brokers)]
        print(*map(inode, paths), flush=True)
        time.sleep(1000)


@contextmanager
def harness_to_kill() -> Iterator[tuple[subprocess.Popen[bytes], list[int]]]:
    """A process of ``wait_to_be_killed``, and the namespaces of its hub and of its two brokers."""
    if reason := missing():
        pytest.skip(reason)
    with subprocess.Popen(hub_command(wait_to_be_killed), stdout=subprocess.PIPE, cwd=ROOT) as harness:
        try:
            assert harness.stdout is not None
            yield harness, [int(word) for word in harness.stdout.readline().split()]
        finally:
            harness.kill()


def test_a_killed_harness_leaves_nothing_behind() -> None:
    own, interfaces = inode("/proc/self/ns/net"), socket.if_nameindex()
    with harness_to_kill() as (harness, inodes):
        assert len(set(inodes) - {own}) == 3
        # The harness, its holder and a sleep; a holder and a sleep for each of two brokers.
        eventually(lambda: len(processes_in(*inodes)) == 7, what="seven processes")
        pids = processes_in(*inodes)
        assert socket.if_nameindex() == interfaces
        harness.kill()
        harness.wait()
        eventually(lambda: not alive(pids), what="all processes have ended")
    assert socket.if_nameindex() == interfaces


def test_holders_of_brokers_wait_for_that_of_the_hub() -> None:
    """Until then a process of the hub may still enter a broker's namespace."""
    with harness_to_kill() as (harness, (hub, *brokers)):
        eventually(lambda: len(processes_in(*brokers)) == 4, what="two holders and two sleeps")
        (holder_of_hub,) = [pid for pid in processes_in(hub) if is_shell(pid)]
        holder = next(pid for pid in processes_in(*brokers) if is_shell(pid))
        os.kill(holder_of_hub, signal.SIGSTOP)
        harness.kill()
        harness.wait()
        late = start_sleep("nsenter", f"--net=/proc/{holder}/ns/net", "--")
        try:
            eventually(lambda: late.pid in processes_in(*brokers), what="the late process is inside")
            with pytest.raises(subprocess.TimeoutExpired):
                late.wait(3)
        finally:
            os.kill(holder_of_hub, signal.SIGCONT)
        assert late.wait(WAIT_S) == -signal.SIGKILL


def is_shell(pid: int) -> bool:
    """Whether a process is a holder."""
    return Path(f"/proc/{pid}/comm").read_text() == "sh\n"


def test_namespaces_need_a_hub() -> None:
    with pytest.raises(NamespacesFailed, match="call enter_hub first"):
        Namespaces([1])


@in_hub
def test_programs_started_in_a_hub_are_no_hub() -> None:
    program = "from chaos.harness.namespaces import is_hub; print(is_hub())"
    assert subprocess.check_output([sys.executable, "-c", program]) == b"False\n"


@in_hub
def test_an_isolated_leader_acknowledges_nothing_and_joins_its_successor() -> None:
    with tempfile.TemporaryDirectory(prefix="raftlog-e2e-") as name, Namespaces([1, 2, 3]) as network:
        create_machines(Path(name), [Machine(network.address(broker), 7070, 7170) for broker in (1, 2, 3)])
        commands = {broker: network.command(broker) for broker in (1, 2, 3)}
        with Cluster(Path(name), commands=commands) as cluster:
            create_topic(cluster.url(1), "orders")
            produce_surely(cluster.urls, "orders", ["before"])
            leader = cluster.leader("orders", 0)
            others = [broker for broker in (1, 2, 3) if broker != leader]
            drops = [
                network.drop(Flow(source=network.address(source), target=network.address(target)))
                for other in others
                for source, target in ((leader, other), (other, leader))
            ]
            unknown = produce(cluster.url(leader), "orders", ["never acknowledged"], query="?timeout=1s")
            assert unknown.status in (503, 504), unknown
            produce_surely([cluster.url(other) for other in others], "orders", ["without the leader"])
            assert sum(drop.stop() for drop in drops) > 0  # nobody need have sent in every direction
            produce_surely([cluster.url(leader)], "orders", ["together"])
            eventually(lambda: in_sync(cluster) == [1, 2, 3], what="three replicas in sync")
            stored = [[value for _, value in read_all(url, "orders")] for url in cluster.urls]
            assert stored == [["before", "without the leader", "together"]] * 3


def in_sync(cluster: Cluster) -> object:
    """The brokers with the whole log of the topic's only partition."""
    return partitions_of(cluster.url(1), "orders")[0]["in_sync"]
