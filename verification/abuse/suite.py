"""Runs all attacks against three real brokers that may open 1,024 files each, and reports the results.

Decides: what is measured during an attack and what counts as a failure: a forbidden response, a traceback,
the end of a process, or an acknowledged record that cannot be read. Times and memory are measured and
reported; the caller compares these figures with its targets.
"""

from __future__ import annotations

import itertools
import json
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from broker.addresses import RPC_PORT_STEP
from chaos.cluster import Cluster
from raftlog.testing.waits import LIMIT_S
from raftlog.wire import groups, media_types, records, topics
from verification.abuse import bad_inputs, on_connections, on_requests, on_state
from verification.abuse.bystander import DUTIES, Bystander, Seen
from verification.abuse.target import Attack, Target, is_wrong

OPEN_FILES_MAX: Final = 1024
CALM: Final = "calm"
# Each histogram is compared with itself: a page of metrics is written in slices, and a look may fall between
# two slices.
LOOKS: Final = tuple(
    f"raftlog_event_loop_{name}_seconds_{part}"
    for name in ("held", "delay")
    for part in ("count", 'bucket{le="0.05"}')
)
SETTLE_S: Final = 2.0
READ_S: Final = LIMIT_S  # longest time for which the bystander's records may be refused at the end
BEYOND_BOUND_MIB: Final = 32
SERVED_S: Final = (
    LIMIT_S  # longest time of each duty, and time after an attack within which all duties are done again
)
REFUSED_MAX: Final = (
    5  # refusals of the bystander in a strict attack: leaders may move, because requests may ask for it
)
COORDINATORS: Final = 16  # partitions of internal topics


_JSON: Final = {"Content-Type": media_types.JSON}
_FIRST_OFFSET: Final = json.dumps({"offsets": [{"topic": CALM, "partition": 0, "offset": 0}]}).encode()


def _nothing(target: Target) -> Counter[str]:
    time.sleep(5 * target.scale)
    return Counter()


ATTACKS: Final = (
    Attack("none, for comparison", _nothing),
    *bad_inputs.ATTACKS,
    *on_requests.ATTACKS,
    *on_connections.ATTACKS,
    *on_state.ATTACKS,
)


@dataclass(frozen=True, slots=True)
class Result:
    """Result of one attack. The memory figures are those of the broker whose memory grew most."""

    name: str
    seconds: float
    responses: Counter[str]
    held: int  # samples of all brokers' event loops that were blocked for more than 50 ms
    late: int  # samples that were late for any reason, including a busy machine
    slowest_probe_ms: float
    produce_p99_ms: float
    refused: Counter[str]  # of the bystander's requests
    peak_mib: float
    after_mib: float
    bound_mib: int
    slowest_duty_ms: float
    not_served: list[str]  # duties that were not done again in time after the attack
    is_strict: bool

    @property
    def keeps_bounds(self) -> bool:
        """True if no event loop was blocked and the memory of each broker stayed within its limit."""
        return self.held <= 0 and self.peak_mib <= self.bound_mib + BEYOND_BOUND_MIB

    @property
    def wrong(self) -> list[str]:
        """Responses that are wrong for any request, such as a 500."""
        return [answer for answer in self.responses if is_wrong(answer)]

    @property
    def failures(self) -> list[str]:
        """Descriptions of the guarantees that the brokers broke during this attack."""
        found = [*self.wrong, *(f"{duty} is not served after the attack" for duty in self.not_served)]
        if self.is_strict and self.refused.total() > REFUSED_MAX:
            found += [f"refused to the bystander: {why}" for why in self.refused]
        if self.slowest_duty_ms > 1000 * SERVED_S:
            found.append(f"a duty took {self.slowest_duty_ms:.0f} ms")
        return [f"{self.name}: {each}" for each in found]

    @property
    def line(self) -> str:
        refused = f", refused {dict(self.refused)}" if self.refused else ""
        return (
            f"{self.seconds:.1f} s; loops held {self.held}, late {self.late}; "
            f"slowest probe {self.slowest_probe_ms:.0f} ms; "
            f"produce p99 {self.produce_p99_ms:.0f} ms, slowest duty {self.slowest_duty_ms:.0f} ms{refused}; "
            f"memory {self.peak_mib:+.0f} MiB at most, {self.after_mib:+.0f} MiB after"
        )


@dataclass(frozen=True, slots=True)
class Findings:
    """Results of all attacks. If ``failures`` is empty, the brokers kept every guarantee."""

    results: list[Result]
    acknowledged: int
    failures: list[str]


def _silent(_: Result) -> None:
    """Report nothing about a result."""


def run_suite(
    attacks: Iterable[Attack] = ATTACKS, *, scale: float = 1.0, tell: Callable[[Result], None] = _silent
) -> Findings:
    """Run these attacks, each scaled by ``scale``; call ``tell`` with each result.

    Raises ``ClusterFailed``.
    """
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="raftlog-abuse-")))
        limit = OPEN_FILES_MAX if shutil.which("prlimit") else None
        cluster = stack.enter_context(Cluster(directory, open_files_max=limit))
        target = _target(cluster, scale)
        for topic, partitions in ((CALM, len(cluster.brokers)), (target.topic, 1)):
            body = json.dumps({"name": topic, "partitions": partitions}).encode()
            target.ask("POST", topics.CREATE.path, body, _JSON)
            for partition in range(partitions):
                cluster.leader(topic, partition)
        acknowledged: list[str] = []
        with Bystander(cluster.urls, CALM, _groups(cluster, target)) as bystander:
            results: list[Result] = []
            for attack in attacks:
                results.append(_measured(cluster, bystander, attack, target, acknowledged))
                tell(results[-1])
            refused = _refused_in_the_end(bystander, acknowledged)
        failures = [f"not served at the end: {why}" for why in refused]
        failures += [failure for result in results for failure in result.failures]
        failures += cluster.broken()
        lost = _lost(cluster, target, set(acknowledged))
        failures += [f"acknowledged but not readable: {sorted(lost)[:10]} of {len(lost)}"] if lost else []
        return Findings(results, len(acknowledged), failures)


def _target(cluster: Cluster, scale: float) -> Target:
    where = [urlsplit(url) for url in cluster.urls]
    nodes = [(url.hostname or "", (url.port or 0) + RPC_PORT_STEP) for url in where]
    return Target(cluster.urls, nodes, "abused", scale)


def _measured(
    cluster: Cluster, bystander: Bystander, attack: Attack, target: Target, acknowledged: list[str]
) -> Result:
    acknowledged += bystander.take().acknowledged
    before, (held, late) = _resident_mib(cluster), _too_late(cluster)
    for broker in cluster.brokers:
        Path(f"/proc/{cluster.pid(broker)}/clear_refs").write_text("5")  # the peak is counted from here on
    began = time.monotonic()
    responses = attack.run(target)
    seconds = time.monotonic() - began
    time.sleep(SETTLE_S * target.scale)
    not_served = _not_served(bystander, seen := bystander.take(), target.times(COORDINATORS))
    peaks, after = _resident_mib(cluster, "VmHWM"), _resident_mib(cluster)
    acknowledged += seen.acknowledged
    return Result(
        name=attack.name,
        seconds=seconds,
        responses=responses,
        held=round(_too_late(cluster)[0] - held),
        late=round(_too_late(cluster)[1] - late),
        slowest_probe_ms=1000 * max(seen.probes, default=0.0),
        produce_p99_ms=1000 * _quantile(seen.produces, 0.99),
        refused=seen.refused,
        peak_mib=max(peak - old for peak, old in zip(peaks, before, strict=True)),
        after_mib=max(new - old for new, old in zip(after, before, strict=True)),
        bound_mib=attack.bound_mib,
        slowest_duty_ms=1000 * seen.slowest_duty_s,
        not_served=not_served,
        is_strict=attack.is_strict,
    )


def _not_served(bystander: Bystander, seen: Seen, times: int) -> list[str]:
    """Wait until the bystander has completed each kind of request ``times`` more times; add its results to
    ``seen``.
    """
    done: Counter[str] = Counter()
    deadline = time.monotonic() + SERVED_S
    while min(done[duty] for duty in DUTIES) < times and time.monotonic() < deadline:
        time.sleep(SETTLE_S / 10)  # pause between two looks
        newer = bystander.take()
        done.update({duty: len(durations) for duty, durations in newer.duties.items()})
        seen.add(newer)
    return [duty for duty in DUTIES if done[duty] < times]


def _refused_in_the_end(bystander: Bystander, acknowledged: list[str]) -> list[str]:
    """Wait until each kind of the bystander's requests succeeds once; return the refusals of the last
    attempt.
    """
    deadline = time.monotonic() + SERVED_S
    while True:
        not_served = _not_served(bystander, seen := bystander.take(), COORDINATORS)
        acknowledged += seen.acknowledged
        refused = [*not_served, *seen.refused]
        if not refused or time.monotonic() > deadline:
            return refused


def _groups(cluster: Cluster, target: Target) -> list[str]:
    """Return the names of groups, one for each coordinator."""
    target.ask("PUT", groups.COMMIT.path.format(group="calm"), _FIRST_OFFSET, _JSON)
    found: dict[int, str] = {}
    names = (f"calm-{number}" for number in itertools.count())
    while len(found) < COORDINATORS:
        group = next(names)
        described = cluster.get(groups.COORDINATOR.path.format(group=group))
        found.setdefault(int(str(described["partition"])), group)
    return list(found.values())


def _lost(cluster: Cluster, target: Target, acknowledged: set[str]) -> set[str]:
    """Return acknowledged values that no reader gets; waits first, because delayed messages may not be due
    yet.
    """
    deadline = time.monotonic() + READ_S
    while (lost := acknowledged - set(_stored(cluster, target))) and time.monotonic() < deadline:
        time.sleep(SETTLE_S)
    return lost


def _resident_mib(cluster: Cluster, what: str = "VmRSS") -> list[float]:
    found = []
    for broker in cluster.brokers:
        status = Path(f"/proc/{cluster.pid(broker)}/status").read_text().splitlines()
        found.append(next(int(line.split()[1]) for line in status if line.startswith(what)) / 1024)
    return found


def _too_late(cluster: Cluster) -> tuple[float, float]:
    """Count delays of event loops above 50 ms: with and without the time in which the process had no CPU."""
    figures = [cluster.metrics(*LOOKS, broker=broker) for broker in cluster.brokers]
    return (
        sum(looks - in_time for looks, in_time, *_ in figures),
        sum(looks - in_time for *_, looks, in_time in figures),
    )


def _quantile(times: list[float], part: float) -> float:
    return sorted(times)[int(part * (len(times) - 1))] if times else 0.0


def _stored(cluster: Cluster, target: Target) -> Iterable[str]:
    for partition in range(len(cluster.brokers)):
        path, offset = records.FETCH.at(topic=CALM, partition=partition), 0
        deadline = time.monotonic() + READ_S
        while time.monotonic() < deadline:
            answer, body = target.ask("GET", f"{path}?offset={offset}&limit=10000")
            if answer == "204":
                break
            if answer == "200":
                page = json.loads(body)
                yield from (str(record["value"]) for record in page["records"])
                offset = page["next_offset"]
            else:
                time.sleep(0.2)  # connections of the last attack may not be closed yet
