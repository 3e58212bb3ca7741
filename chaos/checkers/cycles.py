"""Finds cycles of dependencies between operations.

``ww``: from the writer of a value to the writer of the next value in the version order. ``wr``: from the
writer of a value to each operation that read the value. ``process`` and ``realtime``: from an earlier
operation to a later one. Logs without isolation of writes permit cycles that need a ``ww``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from chaos.checkers.anomaly import Anomaly, Severity
from chaos.checkers.evidence import Evidence
from chaos.history import Outcome, Poll, Send

Edges = dict[int, list[int]]

# The edges of each kind of cycle, with the strongest evidence first.
_FAMILIES: Final = (
    ("G1c", ("wr",), Severity.BAD),
    ("G0", ("ww",), Severity.NORMAL),
    ("G1c", ("wr", "ww"), Severity.NORMAL),
)
_VARIANTS: Final = (("", ()), ("-process", ("process",)), ("-realtime", ("process", "realtime")))


def cycles(evidence: Evidence, *, ww_deps: bool) -> Iterator[Anomaly]:
    """Yield the anomalies ``G0`` and ``G1c`` and their variants. In a history without transactions, other
    checkers find all of these cycles.
    """
    if not evidence.txns:
        return
    graph = _Graph(evidence)
    everything = graph.components(tuple(graph.edges), None)
    if not everything:
        return
    suspects = {node for component in everything for node in component}
    for kind, edges, severity in _FAMILIES:
        if "ww" in edges and not ww_deps and kind == "G1c":
            continue
        reported: list[set[int]] = []
        if edges == ("wr", "ww"):  # cycles of a single kind are reported already
            reported = [set(one) for alone in edges for one in graph.components((alone,), suspects)]
        for suffix, more in _VARIANTS:
            for component in graph.components((*edges, *more), suspects):
                if any(known <= component for known in reported):
                    continue
                if all(graph.is_inside(component, edge) for edge in edges):
                    reported.append(component)
                    yield Anomaly(f"{kind}{suffix}", -1, graph.shown(component), severity)


class _Graph:
    """Dependency graph. Operations are the nodes from 0; the nodes above are the times at which operations
    ended.
    """

    def __init__(self, evidence: Evidence) -> None:
        self._names: dict[tuple[str, int], int] = {}
        self._spans: list[tuple[float, float]] = []  # start and end of each operation
        self._processes: list[int] = []
        self._labels: list[str] = []
        self.edges: dict[str, Edges] = {
            name: defaultdict(list) for name in ("ww", "wr", "process", "realtime")
        }
        writers: defaultdict[int, dict[str, int]] = defaultdict(dict)
        for number, send in enumerate(evidence.history.sends):
            if evidence.must_have_committed(send):
                writers[send.partition][send.value] = self._node("send", number, send)
        for partition, order in evidence.orders.items():
            self._link_writers(order.by_index, writers[partition])
        for number, poll in enumerate(evidence.history.all_polls()):
            if poll.outcome is Outcome.ACKNOWLEDGED:
                reader, of = self._node("poll", number, poll), writers[poll.partition]
                read = {of[value] for _, value in poll.records if value in of}
                for writer in sorted(read - {reader}):
                    self.edges["wr"][writer].append(reader)
        self._link_in_time()

    def _node(self, kind: str, number: int, operation: Send | Poll) -> int:
        name = (kind, number) if operation.txn is None else ("txn", operation.txn)
        node = self._names.setdefault(name, len(self._names))
        # An operation with an unknown outcome may take effect at any later time.
        known = operation.outcome is Outcome.ACKNOWLEDGED
        ends_s = operation.completed_s if known else float("inf")
        if node == len(self._spans):
            self._spans.append((operation.invoked_s, ends_s))
            self._processes.append(operation.process)
            label = repr(operation.value) if isinstance(operation, Send) else f"poll {number}"
            self._labels.append(label if operation.txn is None else f"transaction {operation.txn}")
        else:
            begun_s, ended_s = self._spans[node]
            self._spans[node] = min(begun_s, operation.invoked_s), max(ended_s, ends_s)
        return node

    def _link_writers(self, values: Sequence[tuple[int, str]], writers: dict[str, int]) -> None:
        edges = self.edges["ww"]
        for (_, one), (_, other) in pairwise(values):
            before, after = writers.get(one), writers.get(other)
            if before is not None and after is not None and before != after:
                edges[before].append(after)

    def _link_in_time(self) -> None:
        count, realtime = len(self._spans), self.edges["realtime"]
        ends = sorted((ended_s, node) for node, (_, ended_s) in enumerate(self._spans))
        at, last = 0, dict[int, int]()
        for node in sorted(range(count), key=lambda node: self._spans[node][0]):
            while at < count and ends[at][0] < self._spans[node][0]:
                realtime[ends[at][1]].append(count + at)
                if at:
                    realtime[count + at - 1].append(count + at)
                at += 1
            if at:
                realtime[count + at - 1].append(node)
            before = last.get(self._processes[node])
            if before is not None:
                self.edges["process"][before].append(node)
            last[self._processes[node]] = node

    def components(self, kinds: tuple[str, ...], within: set[int] | None) -> list[set[int]]:
        """Return the strongly connected components with more than one node (Tarjan 1972), without
        recursion.
        """
        edges = [self.edges[kind] for kind in kinds]
        found: list[set[int]] = []
        index: dict[int, int] = {}
        low: dict[int, int] = {}
        path: list[int] = []  # nodes that belong to no set yet
        is_on_path: set[int] = set()
        for root in range(len(self._spans)) if within is None else sorted(within):
            if root in index:
                continue
            calls = [(root, self._after(root, edges, within))]
            index[root] = low[root] = len(index)
            path.append(root)
            is_on_path.add(root)
            while calls:
                node, following = calls[-1]
                for after in following:
                    if after not in index:
                        index[after] = low[after] = len(index)
                        path.append(after)
                        is_on_path.add(after)
                        calls.append((after, self._after(after, edges, within)))
                        break
                    if after in is_on_path and index[after] < low[node]:
                        low[node] = index[after]
                else:
                    calls.pop()
                    if calls and low[node] < low[calls[-1][0]]:
                        low[calls[-1][0]] = low[node]
                    if low[node] == index[node]:
                        place = len(path) - 1
                        while path[place] != node:
                            place -= 1
                        if place < len(path) - 1:
                            found.append(set(path[place:]))
                        is_on_path.difference_update(path[place:])
                        del path[place:]
        return found

    @staticmethod
    def _after(node: int, edges: list[Edges], within: set[int] | None) -> Iterator[int]:
        return iter(
            [after for some in edges for after in some.get(node, ()) if within is None or after in within]
        )

    def is_inside(self, component: set[int], kind: str) -> bool:
        """True if an edge of ``kind`` connects two nodes of the component."""
        edges = self.edges[kind]
        return any(after in component for node in component for after in edges.get(node, ()))

    def shown(self, component: set[int]) -> str:
        """Return the names of up to six operations of a component."""
        names = [self._labels[node] for node in sorted(component) if node < len(self._labels)]
        return f"{', '.join(names[:6])}{' and others' if len(names) > 6 else ''}"
