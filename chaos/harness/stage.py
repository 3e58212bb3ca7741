"""What a run needs on this machine, and how it is put together: brokers, proxies, topics.

Decides: which abilities this machine has, and so which faults can be injected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import permutations
from pathlib import Path
from typing import Final

from api.cluster_files import settings_path
from api.settings import load_settings
from chaos.cluster import Cluster
from chaos.harness import links
from chaos.harness.arena import Arena
from chaos.harness.faults import FAULTS, PROXIES
from chaos.harness.faults.steps import Fault
from chaos.harness.links import Link, Links
from chaos.harness.record import Ability
from raftlog import Client

TOPIC: Final = "chaos"

_PROBES: Final[dict[str, Callable[[], str | None]]] = {PROXIES: links.missing}


class CannotInject(Exception):
    """A fault that was asked for cannot be injected here; the message has the remedy."""


def abilities() -> tuple[Ability, ...]:
    """What faults need, and whether this machine has it."""
    found = []
    for name, missing in _PROBES.items():
        reason = missing()
        found.append(Ability(name=name, is_there=reason is None, detail=reason or "available"))
    return tuple(found)


def choose_faults(names: Sequence[str], brokers: int) -> list[Fault]:
    """The faults of these names, or all that this machine can inject. Raises ``CannotInject``."""
    lacking = {ability.name: ability.detail for ability in abilities() if not ability.is_there}
    if unknown := sorted(set(names) - FAULTS.keys()):
        raise CannotInject(f"there is no fault {unknown[0]!r}; `raftlog chaos faults` lists them")
    chosen = []
    for fault in FAULTS.values():
        reasons = [lacking[need] for need in fault.needs if need in lacking]
        if brokers < fault.brokers_min:
            reasons.append(f"it takes {fault.brokers_min} brokers")
        if not reasons and (not names or fault.name in names):
            chosen.append(fault)
        elif reasons and fault.name in names:
            raise CannotInject(f"{fault.name} cannot be injected here: {'; '.join(reasons)}")
    return chosen


@contextmanager
def staged(directory: Path, *, brokers: int, partitions: int) -> Iterator[Arena]:
    """A running cluster with a topic, behind proxies if this machine has them."""
    cluster = Cluster(directory, brokers=brokers)
    with ExitStack() as stack:
        proxies = None
        if links.missing() is None:
            proxies = stack.enter_context(Links(directory, _upstreams(cluster)))
            for broker in cluster.brokers:
                cluster.add_environment(broker, _addresses(broker, cluster.brokers, proxies))
        stack.enter_context(cluster)
        with Client(cluster.bootstrap) as client:
            client.topics.create(TOPIC, partitions=partitions, replication=min(3, brokers))
        yield Arena(cluster, [TOPIC], proxies)


def _upstreams(cluster: Cluster) -> dict[Link, str]:
    settings = {broker: load_settings(settings_path(cluster.directory, broker)) for broker in cluster.brokers}
    rpc = {
        Link(one, other): f"{settings[other].rpc.host}:{settings[other].rpc.port}"
        for one, other in permutations(cluster.brokers, 2)
    }
    http = {
        Link(0, broker): f"{found.http.host}:{found.http.port}" for broker, found in sorted(settings.items())
    }
    return {**http, **rpc}


def _addresses(broker: int, brokers: Sequence[int], proxies: Links) -> dict[str, str]:
    """Settings of a broker as environment: it reaches its peers, and is reached by clients, by proxies."""
    peers = {
        f"RAFTLOG_PEERS__{other}__PORT": str(proxies.port(Link(broker, other)))
        for other in brokers
        if other != broker
    }
    return {**peers, "RAFTLOG_ADVERTISED_HTTP": proxies.url(broker)}
