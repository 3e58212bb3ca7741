"""Sizes of topics and lags of groups, from the metrics of the brokers: a request or two to each broker.

Decides: that a list costs the same for one topic or group and for thousands. Brokers limit how many
partitions and groups their metrics have; the numbers of the others are not known.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from threading import Thread
from typing import TYPE_CHECKING, Final

from raftlog.wire import paths

if TYPE_CHECKING:
    from raftlog.wire.bodies import BrokerBody, TopicBody

_TIMEOUT_S: Final = 3.0
_MEASURED_S: Final = 0.3  # after a scrape, for lags that it has had measured
_SERIES: Final = re.compile(r"^(raftlog_\w+)\{(.*)\} (\S+)$", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_SIZE, _LEADER, _LAG = (
    "raftlog_partition_size_bytes",
    "raftlog_partition_leader",
    "raftlog_group_lag_records",
)

Series = Mapping[tuple[str, str, str], float]
"""Values by the labels group (empty for partitions), topic and partition."""


def topic_sizes(brokers: Sequence[BrokerBody], topics: Iterable[TopicBody]) -> dict[str, int]:
    """The bytes of each topic as its leaders have them; topics with an unknown partition are missing."""
    sizes: dict[str, dict[str, int]] = defaultdict(dict)
    for series in _scraped(brokers, (_SIZE, _LEADER)):
        leads = series[_LEADER]
        for place, size_bytes in series[_SIZE].items():
            if leads.get(place):
                sizes[place[1]][place[2]] = int(size_bytes)
    return {
        one.name: sum(sizes[one.name].values()) for one in topics if len(sizes[one.name]) >= one.partitions
    }


def group_lags(brokers: Sequence[BrokerBody]) -> dict[str, int]:
    """Records behind the committed offsets of each group, a few seconds old; unknown ones are missing."""
    _scraped(brokers, ())  # has lags measured that are older than some seconds
    time.sleep(_MEASURED_S)
    lags: dict[str, int] = defaultdict(int)
    for series in _scraped(brokers, (_LAG,)):
        for (group, _, _), records in series[_LAG].items():
            lags[group] += int(records)
    return lags


def _scraped(brokers: Sequence[BrokerBody], names: Sequence[str]) -> list[Mapping[str, Series]]:
    """These metrics of each broker that is alive and answers; all brokers are asked at once."""
    urls = [broker.http for broker in brokers if broker.alive]
    texts: list[str] = []
    threads = [Thread(target=_collect, args=(url, texts), daemon=True) for url in urls]
    for each in threads:
        each.start()
    for each in threads:
        each.join(_TIMEOUT_S)
    return [_series(text, names) for text in [*texts]]


def _collect(url: str, texts: list[str]) -> None:
    from http.client import HTTPException

    from api.cli.reading import opened

    with suppress(OSError, HTTPException), closing(opened(url, _TIMEOUT_S)) as http:
        http.request("GET", paths.METRICS)
        texts.append(http.getresponse().read().decode())


def _series(text: str, names: Sequence[str]) -> Mapping[str, Series]:
    found: dict[str, dict[tuple[str, str, str], float]] = {name: {} for name in names}
    for name, labels, value in _SERIES.findall(text):
        if name in found:
            of = dict(_LABEL.findall(labels))
            found[name][of.get("group", ""), of["topic"], of["partition"]] = float(value)
    return found
