"""``OPERATIONS``: all operations of the HTTP API. Only servers and tests need all of them."""

from __future__ import annotations

from typing import Any, Final

from raftlog.wire import (
    brokers,
    cluster,
    dead_letters,
    delays,
    dependents,
    documents,
    groups,
    health,
    joining,
    members,
    partitions,
    plans,
    queues,
    records,
    schedules,
    topics,
    transactions,
)
from raftlog.wire.operation import Operation

_MODULES: Final = (
    topics,
    dependents,
    partitions,
    records,
    groups,
    members,
    queues,
    dead_letters,
    delays,
    schedules,
    transactions,
    brokers,
    cluster,
    joining,
    plans,
    health,
    documents,
)

OPERATIONS: Final[dict[str, Operation[Any]]] = {
    found.name: found
    for module in _MODULES
    for found in vars(module).values()
    if isinstance(found, Operation)
}
"""All operations by name."""
