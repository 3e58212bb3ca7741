"""Calls with options that do not exist, and with values of a wrong type: mypy refuses every one of them.

It reports a ``type: ignore`` that it does not need, so ``make check`` fails once it accepts such a call.
"""

from __future__ import annotations

from collections.abc import Callable

import raftlog
from raftlog import aio

Calls = dict[str, Callable[[], object]]


def misspelt(client: raftlog.Client) -> Calls:
    """Calls by the misspelt option."""
    partition, queue = client.partition("orders", 0), client.queue("orders")
    return {
        "request_timeot": lambda: raftlog.Client(request_timeot="5s"),  # type: ignore[call-arg]
        "retry_timeot": lambda: raftlog.Client.from_env(retry_timeot="5s"),  # type: ignore[call-arg]
        "max_stalenes": lambda: raftlog.Client.from_url("localhost", max_stalenes="5s"),  # type: ignore[call-arg]
        "liner": lambda: client.producer("orders", liner="5ms"),  # type: ignore[call-arg]
        "limits": lambda: client.consumer("g", "orders", limits=5),  # type: ignore[call-arg]
        "concurency": lambda: client.worker("orders", group="g", concurency=5),  # type: ignore[call-arg]
        "undecodeable": lambda: partition.tail(undecodeable="skip"),  # type: ignore[call-arg]
        "max_byte": lambda: partition.chunks(max_byte=5),  # type: ignore[call-arg]
        "leases": lambda: queue.receive(leases="5s"),  # type: ignore[call-arg]
        "max_delivery": lambda: queue.jobs(max_delivery=5),  # type: ignore[call-arg]
    }


def misspelt_of_aio(client: aio.Client) -> Calls:
    """Those of the asynchronous client. None of them waits for its result."""
    partition, queue = client.partition("orders", 0), client.queue("orders")
    return {
        "retry_timeot": lambda: aio.Client.from_env(retry_timeot="5s"),  # type: ignore[call-arg]
        "max_stalenes": lambda: aio.Client.from_url("localhost", max_stalenes="5s"),  # type: ignore[call-arg]
        "liner": lambda: client.producer("orders", liner="5ms"),  # type: ignore[call-arg]
        "limits": lambda: client.consumer("g", "orders", limits=5),  # type: ignore[call-arg]
        "concurency": lambda: client.worker("orders", group="g", concurency=5),  # type: ignore[call-arg]
        "undecodeable": lambda: partition.tail(undecodeable="skip"),  # type: ignore[call-arg]
        "leases": lambda: queue.receive(leases="5s"),  # type: ignore[call-arg]
        "max_delivery": lambda: queue.jobs(max_delivery=5),  # type: ignore[call-arg]
    }


def of_wrong_types(client: raftlog.Client) -> Calls:
    """Calls by the option whose value has a wrong type."""
    partition, queue = client.partition("orders", 0), client.queue("orders")
    return {
        "request_timeout": lambda: raftlog.Client(request_timeout=5),  # type: ignore[arg-type]
        "retry_timeout": lambda: raftlog.Client.from_env(retry_timeout=5),  # type: ignore[arg-type]
        "rack": lambda: raftlog.Client.from_url("localhost", rack=5),  # type: ignore[arg-type]
        "batch_bytes": lambda: client.producer("orders", batch_bytes="1MB"),  # type: ignore[arg-type]
        "session_timeout": lambda: client.consumer("g", "orders", session_timeout=5),  # type: ignore[arg-type]
        "concurrency": lambda: client.worker("orders", group="g", concurrency="5"),  # type: ignore[arg-type]
        "linger": lambda: next(partition.tail(linger=5)),  # type: ignore[arg-type]
        "max_bytes": lambda: next(partition.chunks(max_bytes="1MB")),  # type: ignore[arg-type]
        "wait": lambda: queue.receive(wait=5),  # type: ignore[arg-type]
        "lease": lambda: next(queue.jobs(lease=5)),  # type: ignore[arg-type]
    }
