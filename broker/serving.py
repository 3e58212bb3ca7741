"""Gives the HTTP handlers the parts of a broker, its health checks, and the limits from its settings."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version

from prometheus_client import CollectorRegistry

from broker.addresses import names_of
from broker.archived_reads import Archive, ArchivedGateway, ArchivedReads
from broker.broker import Broker
from broker.metrics.delays import DelayedMetrics
from broker.metrics.groups import GroupMetrics
from broker.metrics.partitions import BrokerMetrics
from broker.metrics.transactions import TransactionMetrics
from broker.ports import HealthProbes, Limits, NoArchive, Services
from raftlog.hosting.coordinator import STALLED_S_MAX
from raftlog.hosting.hosted_replica import HostedState
from raftlog.types import METADATA_GROUP
from raftlog.wire.bodies import BrokerState


def services_of(broker: Broker, rng: random.Random, archive: Archive | None = None) -> Services:
    """Return the parts of a broker that handlers use, with the archive of records below log starts."""
    registry = CollectorRegistry()
    past = None if archive is None else _with_archive(broker, archive, registry)
    broker.groups.topics.archive = kept = past or NoArchive()
    settings = broker.settings
    limits = settings.limits
    registry.register(BrokerMetrics(broker))
    registry.register(GroupMetrics(broker.groups, limits.group_metrics_max))
    registry.register(DelayedMetrics(broker.delays.coordinators, broker.host.clock))
    registry.register(TransactionMetrics(broker.transactions, broker.host.clock))

    return Services(
        broker_id=broker.node_id,
        controller=broker.controller,
        topics=broker.gateway.topics,
        gateway=past or broker.gateway,
        log=broker.gateway,
        archive=kept,
        admin=broker.admin,
        groups=broker.groups.service,
        group_offsets=broker.groups.offsets,
        transactions=broker.transactions.service,
        one_shots=broker.transactions.one_shots,
        delayed=broker.delays.service,
        clock=broker.host.clock,
        producer_ids=broker.producer_ids,
        join_tokens=broker.join_tokens,
        rng=rng,
        version=_version(),
        registry=registry,
        health=_health_of(broker),
        limits=Limits(
            body_bytes_max=limits.body_bytes_max,
            request_bytes_in_flight_max=limits.request_bytes_in_flight_max,
            response_bytes_in_flight_max=limits.response_bytes_in_flight_max,
            fetch_bytes_max=limits.fetch_bytes_max,
            wait_ms_max=limits.wait_ms_max,
            prepared_ms_max=broker.settings.transactions.prepared_ms_max,
        ),
        own_names=names_of(settings.urls_of_listeners),
        allowed_hosts=frozenset(settings.http.allowed_hosts),
        allowed_origins=frozenset(settings.cors.allowed_origins),
    )


def _health_of(broker: Broker) -> HealthProbes:
    def ready() -> Mapping[str, bool]:
        return {
            "controller": broker.controller.leader is not None,
            "registered": broker.controller.registration.is_registered,
            "accepting": not broker.is_draining,
            "coordinating": all(each.stalled_s < STALLED_S_MAX for each in broker.coordinators),
        }

    def live() -> Mapping[str, bool]:
        failed = HostedState.UNDER_REPAIR, HostedState.NEEDS_OPERATOR
        return {"metadata": broker.supervisor.state_of(METADATA_GROUP) not in failed}

    def state() -> BrokerState:
        return BrokerState(
            takes_records=broker.host.takes_records,
            disk_free_bytes=broker.disk.free_bytes,
            disk_reserve_bytes=broker.disk.reserve_bytes,
            failed_replicas=len(broker.manager.failures),
        )

    return HealthProbes(
        live=live,
        ready=ready,
        startup=lambda: {"registered": broker.controller.registration.is_registered},
        state=state,
    )


def _with_archive(broker: Broker, archive: Archive, registry: CollectorRegistry) -> ArchivedGateway:
    settings = broker.settings.archive
    reads = ArchivedReads(archive, settings.readers_max, settings.deadline_ms / 1000, registry)
    return ArchivedGateway(broker.gateway, lambda: broker.controller.image.topics, reads)


@cache
def _version() -> str:
    """Return the installed version, which is read from a file once per process."""
    return version("raftlog")
