"""Opens the cluster of a run: starts a new cluster, or attaches to a running cluster.

Decides: which abilities the harness has for this cluster, and so which faults can be injected.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Final

import msgspec

from broker.addresses import RPC_PORT_STEP, Machine
from broker.cluster_files import create_machines, settings_path
from broker.settings import load_settings
from chaos.cluster import Cluster
from chaos.cluster_view import ClusterFailed, ClusterView
from chaos.harness import cgroups, links, namespaces, power
from chaos.harness.arena import Arena
from chaos.harness.faults import CGROUPS, FAULTS, NAMESPACES, POWER, PROCESSES, PROXIES, SHIM
from chaos.harness.faults.steps import Fault
from chaos.harness.links import Link, Links
from chaos.harness.namespaces import Namespaces, is_hub
from chaos.harness.power_cycles import PoweredCluster
from chaos.harness.record import Ability
from chaos.harness.shim import shim as shims
from chaos.harness.shim.shim import Shim
from chaos.http_get import http_get
from chaos.ports import free_ports
from raftlog import Client
from raftlog.wire import bodies, brokers

REPLICATION: Final = 3
DISK_MB: Final = 4_000  # maximum size; files are sparse
TIMEOUT_S: Final = 10  # of a request to a running cluster
# short, because copies are made and restored within seconds
DISKS_AGE: Final = {"RAFTLOG_BROKER__TIMING__DISK_AGE_INTERVAL_MS": "250"}


class CannotInject(Exception):
    """A requested fault cannot be injected; the message has the remedy."""


@dataclass(frozen=True, slots=True)
class Stage:
    """The cluster of a run. ``urls`` are the addresses of a running cluster; without addresses a cluster is
    started.

    ``proxies`` is the API of the proxy server between the brokers of a running cluster.
    """

    urls: Sequence[str] = ()
    proxies: str | None = None

    def abilities(self) -> tuple[Ability, ...]:
        """Return the abilities that faults need, and whether each is available."""
        theirs = (
            "a cluster given with --cluster has processes, files and networks that chaos cannot change"
            if self.urls
            else None
        )
        lacking: dict[str, str | None] = {
            PROCESSES: theirs,
            NAMESPACES: theirs or namespaces.missing(),
            SHIM: theirs or shims.missing(),
            POWER: theirs or power.missing(),
            CGROUPS: theirs or cgroups.missing(),
            PROXIES: links.missing()
            if not self.urls
            else None
            if self.proxies
            else "give the API of the proxy server between the brokers with --toxiproxy",
        }
        return tuple(
            Ability(name=name, is_there=reason is None, detail=reason or "available")
            for name, reason in lacking.items()
        )

    def choose_faults(self, names: Sequence[str], brokers: int) -> list[Fault]:
        """Return the faults with these names, or all faults that can be injected. Raises ``CannotInject``."""
        lacking = {ability.name: ability.detail for ability in self.abilities() if not ability.is_there}
        if unknown := sorted(set(names) - FAULTS.keys()):
            raise CannotInject(f"there is no fault {unknown[0]!r}; `raftlog chaos faults` lists them")
        chosen = []
        for fault in FAULTS.values():
            reasons = [lacking[need] for need in fault.needs if need in lacking]
            if brokers < fault.brokers_min:
                reasons.append(f"it needs {fault.brokers_min} brokers")
            if not reasons and (not names or fault.name in names):
                chosen.append(fault)
            elif reasons and fault.name in names:
                raise CannotInject(f"{fault.name} cannot be injected: {'; '.join(reasons)}")
        return chosen

    @contextmanager
    def open(
        self, directory: Path, *, brokers: int, partitions: int, needs: Collection[str] = ()
    ) -> Iterator[Arena]:
        """Yield the arena of a running cluster with a new topic, and with the means for faults that have
        these ``needs``.

        Raises ``ClusterFailed``, ``LinksFailed``, ``NamespacesFailed``, ``PowerFailed``, ``RaftlogError``.
        """
        with ExitStack() as stack:
            if self.urls:
                attached = links.attach(self.proxies) if self.proxies else None
                arena = Arena(RemoteCluster(self.urls), links=attached)
            else:
                arena = _started(directory, brokers, needs, stack)
            arena.replication = min(REPLICATION, len(arena.cluster.brokers))
            with Client(arena.cluster.bootstrap) as client:
                client.topics.create(
                    arena.topic, partitions=partitions, replication_factor=arena.replication, exist_ok=True
                )
            yield arena


def _started(directory: Path, brokers: int, needs: Collection[str], stack: ExitStack) -> Arena:
    """Start a cluster. It has the proxies, namespaces and disks that the faults need, if the machine can
    provide them.
    """
    network, commands = None, {}
    if is_hub():
        network = stack.enter_context(Namespaces(range(1, brokers + 1)))
        port = free_ports(1)
        rpc_port = port + RPC_PORT_STEP
        machines = [Machine(network.address(broker), port, rpc_port) for broker in network.brokers]
        create_machines(directory, machines)
        commands = {broker: network.command(broker) for broker in network.brokers}
    cluster = Cluster(directory, brokers=brokers, commands=commands, environment=DISKS_AGE)
    arena = Arena(cluster, network=network)
    if links.missing() is None:
        host = network.hub_address if network else "127.0.0.1"
        arena.links = stack.enter_context(links.started(directory, _upstreams(cluster), host))
        for broker in cluster.brokers:
            cluster.add_environment(broker, _addresses(broker, cluster.brokers, arena.links))
    if SHIM in needs:
        arena.shims = {broker: Shim(cluster.data_directory(broker)) for broker in cluster.brokers}
        for broker, shim in arena.shims.items():
            cluster.add_environment(broker, shim.environment)
    if POWER in needs:
        arena.powered = stack.enter_context(PoweredCluster(cluster, DISK_MB))
    else:
        stack.enter_context(cluster)
    return arena


def _upstreams(cluster: Cluster) -> dict[Link, str]:
    """Return the real address of the broker behind each link."""
    settings = {broker: load_settings(settings_path(cluster.directory, broker)) for broker in cluster.brokers}
    rpc = {
        Link(one, other): f"{settings[other].rpc.host}:{settings[other].rpc.port}"
        for one, other in permutations(cluster.brokers, 2)
    }
    http = {
        Link(0, broker): f"{found.http.host}:{found.http.port}" for broker, found in sorted(settings.items())
    }
    return {**http, **rpc}


def _addresses(broker: int, brokers: Sequence[int], proxies: Links) -> Mapping[str, str]:
    """Return the settings of a broker as environment variables. With them, the broker reaches its peers, and
    clients reach the broker, through the proxies.
    """
    peers = {}
    for other in brokers:
        if other != broker:
            peer = f"RAFTLOG_BROKER__PEERS__{other}"
            peers[f"{peer}__HOST"] = proxies.host
            peers[f"{peer}__PORT"] = str(proxies.port(Link(broker, other)))
            peers[f"{peer}__PINNED"] = "true"  # otherwise addresses in the metadata would bypass the proxy
    return {**peers, "RAFTLOG_BROKER__HTTP__ADVERTISED_URL": proxies.url(broker)}


class RemoteCluster(ClusterView):
    """The brokers of a running cluster, found at any of these URLs. Raises ``ClusterFailed``.

    The processes cannot be killed, but leaderships can be moved.
    """

    def __init__(self, urls: Sequence[str]) -> None:
        self._entrances = [url.rstrip("/") for url in urls]
        super().__init__({row.broker_id: row.http for row in self._rows() if row.http is not None})
        if not self.brokers:
            raise ClusterFailed(f"the cluster at {urls[0]} has no brokers yet")

    @property
    def running(self) -> list[int]:
        """Ids of the brokers that the cluster reports as alive."""
        return sorted(row.broker_id for row in self._rows() if row.alive)

    def _rows(self) -> list[bodies.BrokerDescription]:
        failure: Exception | None = None
        for url in self._entrances:
            try:
                items = json.loads(http_get(f"{url}{brokers.LIST.path}?limit=1000", TIMEOUT_S)[0])["items"]
                return msgspec.convert(items, list[bodies.BrokerDescription])
            except (OSError, ValueError, KeyError) as error:
                failure = error
        raise ClusterFailed(
            f"no broker responds at {', '.join(self._entrances)} ({failure}); give URLs of brokers with "
            "--cluster"
        )
