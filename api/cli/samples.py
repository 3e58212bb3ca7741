"""Reads sizes of topics and lags of groups from the metrics of the brokers, with few requests.

Decides: that a list of thousands of topics or groups needs as many requests as a list of one. Brokers limit
how many partitions and groups their metrics have; the sizes and lags of other partitions and groups are
unknown.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from threading import Thread
from typing import TYPE_CHECKING, Final

from raftlog.errors import NotSent

if TYPE_CHECKING:
    from raftlog.wire.bodies import TopicDescription

_TIMEOUT_S: Final = 3.0
_MEASURED_S: Final = 0.3  # after a scrape, until the lags that it requested are measured
_SERIES: Final = re.compile(r"^(raftlog_\w+)\{(.*)\} (\S+)$", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_SIZE, _LEADER, _LAG, _OFFSETS = (
    "raftlog_partition_size_bytes",
    "raftlog_partition_leader",
    "raftlog_group_lag_records",
    "raftlog_group_offsets",
)

Series = Mapping[tuple[str, str, str], int]
"""Values of a metric by its labels group, topic and partition; a label that the metric does not have is
empty.
"""


def topic_sizes(urls: Sequence[str], topics: Iterable[TopicDescription]) -> dict[str, int]:
    """Return the size of each topic in bytes, as the leaders of its partitions report it at ``urls``.

    Topics that have a partition of unknown size are missing.
    """
    sizes: dict[str, dict[str, int]] = defaultdict(dict)
    for series in _scraped(urls, (_SIZE, _LEADER)):
        leads = series[_LEADER]
        for place, size_bytes in series[_SIZE].items():
            if leads.get(place):
                sizes[place[1]][place[2]] = size_bytes
    return {
        one.name: sum(sizes[one.name].values()) for one in topics if len(sizes[one.name]) >= one.partitions
    }


def group_lags(urls: Sequence[str]) -> dict[str, int]:
    """Return the lag of each group: the number of records behind its committed offsets, some seconds ago.

    A group that has a partition of unknown lag is missing, because that lag may be the largest.
    """
    _scraped(urls, ())  # requests new samples of lags that are older than some seconds
    time.sleep(_MEASURED_S)
    found: dict[str, int] = {}
    for series in _scraped(urls, (_LAG, _OFFSETS)):
        lags: dict[str, list[int]] = defaultdict(list)
        for (group, _, _), records in series[_LAG].items():
            lags[group].append(records)
        wanted = {group: count for (group, _, _), count in series[_OFFSETS].items() if count}
        found |= {group: sum(lags[group]) for group, count in wanted.items() if len(lags[group]) >= count}
    return found


def _scraped(urls: Sequence[str], names: Sequence[str]) -> list[Mapping[str, Series]]:
    """Return the metrics with these names from all brokers that answer at these URLs; all brokers are asked
    at once.
    """
    found: list[Mapping[str, Series]] = []
    threads = [Thread(target=_collect, args=(url, names, found), daemon=True) for url in urls]
    for each in threads:
        each.start()
    for each in threads:
        each.join(_TIMEOUT_S)
    return [*found]


def _collect(url: str, names: Sequence[str], found: list[Mapping[str, Series]]) -> None:
    """Add the metrics of the broker at an address. Adds nothing if the broker does not answer, or the answer
    is not metrics.
    """
    from http.client import HTTPException

    from api.cli.reading import answer_of, opened
    from raftlog.wire import health

    with (
        suppress(OSError, NotSent, HTTPException, ValueError, OverflowError),
        closing(opened(url, _TIMEOUT_S)) as http,
    ):
        found.append(_series(answer_of(http, health.METRICS.path, _TIMEOUT_S).body.decode(), names))


def _series(text: str, names: Sequence[str]) -> Mapping[str, Series]:
    found: dict[str, dict[tuple[str, str, str], int]] = {name: {} for name in names}
    for name, labels, value in _SERIES.findall(text):
        if name in found:
            of = dict(_LABEL.findall(labels))
            found[name][of.get("group", ""), of.get("topic", ""), of.get("partition", "")] = int(float(value))
    return found
