"""The operations of the contract: each has one name, one route and a path that its fields fill."""

from __future__ import annotations

import pkgutil
import re
from importlib import import_module
from typing import Any

import pytest

import raftlog.wire
from api.app import ROUTES
from api.http.errors import TABLE
from api.resources import documentation
from broker.ports import Limits
from raftlog.errors import CommitUnknown, NoLeader, PartitionNotFound, RecordTooLarge
from raftlog.wire import cluster, groups, partitions, topics, transactions
from raftlog.wire.operation import Operation

OPERATIONS: list[Operation[Any]] = [
    found
    for module in pkgutil.iter_modules(raftlog.wire.__path__, "raftlog.wire.")
    for found in vars(import_module(module.name)).values()
    if isinstance(found, Operation)
]


def test_each_operation_has_one_route_and_one_name() -> None:
    routes = (*ROUTES, *documentation.routes(ROUTES, "0", Limits()))
    assert sorted(route.operation.name for route in routes) == sorted(each.name for each in OPERATIONS)
    assert len({each.name for each in OPERATIONS}) == len(OPERATIONS)
    assert len({(each.method, each.path) for each in OPERATIONS}) == len(OPERATIONS)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_an_operation_is_whole(operation: Operation[Any]) -> None:
    assert re.fullmatch(r"[a-z_]+\.[a-z_]+", operation.name)
    assert operation.method not in ("GET", "DELETE") or not operation.bodies
    assert not operation.summary.endswith(".")
    assert set(operation.all_errors) <= TABLE.keys()
    assert len(set(operation.errors)) == len(operation.errors)
    fields = dict.fromkeys(re.findall(r"{(\w+)}", operation.path), "a/b c")
    assert operation.at(**fields) == re.sub(r"{\w+}", "a%2Fb%20c", operation.path)
    if fields:
        with pytest.raises(KeyError):
            operation.at()


def test_errors_follow_from_who_leads_and_what_is_sent() -> None:
    assert {PartitionNotFound, NoLeader} <= {*partitions.DESCRIBE.all_errors}
    assert {RecordTooLarge, NoLeader, CommitUnknown} <= {*topics.CREATE.all_errors}
    assert CommitUnknown not in topics.LIST.all_errors
    assert cluster.DESCRIBE.all_errors == (NoLeader,)


def test_ids_of_transactions_are_readable_in_paths() -> None:
    assert transactions.COMMIT.at(transaction="copy-1@7.0") == "/v1/transactions/copy-1@7.0:commit"
    assert groups.DESCRIBE.at(group="ü\ud800") == "/v1/groups/%C3%BC%ED%A0%80"
