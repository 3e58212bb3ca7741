"""Checks for leaks: resources that brokers hold after all requests are complete.

Decides: which resources are checked: bytes that count towards a memory limit, and waiting requests. Leaves to
others: when all requests are complete (``convergence``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from broker.broker import Broker
from verification.simulator.machine import Machine


def leaks(machine: Machine, of_scenarios: Iterable[tuple[str, int]]) -> list[str]:
    """Return the resources that a broker holds, by name, including calls that are in flight."""
    broker = machine.broker
    held = [] if broker is None else [*_of_requests(broker), *_of_groups(broker)]
    held += of_scenarios
    return [f"{machine.name}: {count} {what}" for what, count in held if count]


def _of_requests(broker: Broker) -> Iterator[tuple[str, int]]:
    yield "bytes of bodies in flight", broker.gateway.local.bytes_in_flight
    yield "calls without an answer", len(broker.host.calls._open)
    yield "calls being answered", len(broker.host.calls._running)
    yield "waits for metadata", broker.controller._shown.waiting
    for key, replica in broker.manager.replicas.items():
        yield f"reads parked at {key}", replica.parked
        yield f"batches in flight at {key}", len(replica._in_flight)


def _of_groups(broker: Broker) -> Iterator[tuple[str, int]]:
    yield "uncommitted bytes of all groups", broker.host.uncommitted.total
    for group_id, group in broker.host.groups.items():
        waits = group._waits
        recent = group._recent
        yield f"uncommitted bytes of group {group_id}", recent.uncommitted_bytes
        yield f"proposals in group {group_id}", sum(entry.proposal is not None for entry in recent._entries)
        for what, waiting in (
            ("read", waits._reads),
            ("durable", waits._durable),
            ("replicated", waits._replicated),
            ("ready", waits._ready),
            ("changed", waits._changes),
            ("of another role", waits._role_changes),
        ):
            yield f"waits to be {what} in group {group_id}", len(waiting)
