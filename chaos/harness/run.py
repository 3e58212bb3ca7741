"""Carries out one run from start to verdict: load, faults, recovery, final read, checks, record."""

from __future__ import annotations

import platform
import threading
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final

from chaos.checkers import Anomaly, Severity, check, count_lost, verdict
from chaos.cluster import Cluster
from chaos.cluster_view import ClusterFailed
from chaos.harness.arena import Arena
from chaos.harness.faults import FAULTS
from chaos.harness.final_read import read_every_broker
from chaos.harness.group_load import GroupLoad
from chaos.harness.injector import Injector
from chaos.harness.record import Counts, Injected, Leadership, Phase, RunRecord
from chaos.harness.report import shown
from chaos.harness.scenario import Scenario
from chaos.harness.stage import Stage
from chaos.history import History, Outcome, Send
from chaos.registers import Verdict
from chaos.workload import Shape, Workload, WorkloadFailed

PARTITIONS: Final = 12
SHAPE: Final = Shape(
    records_max=6,
    pause_ms_max=40,
    live_partitions=4,
    rotate_s=30,
    registers=3,
    transactions=4,
)
QUIET_S: Final = 3.0  # load without faults, before and after them
SETTLE_S: Final = 3.0  # after a fault, clients may still see its effects
HEAL_S: Final = 120.0
SAMPLE_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Progress:
    """The current state of a run, from which the summary on the terminal is made."""

    elapsed_s: float
    phase: str
    acknowledged: int
    transactions: int  # committed transactions
    active: list[str]
    injected: int
    leaders: dict[int, int | None]


@dataclass(slots=True)
class Run:
    """One run and its state; ``execute`` carries the run out."""

    stage: Stage
    scenario: Scenario
    command: str
    watch: Callable[[Progress], None] = lambda progress: None
    history: History = field(default_factory=History)
    phases: list[Phase] = field(default_factory=list)
    leaderships: list[Leadership] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    anomalies: list[Anomaly] = field(default_factory=list)
    injected: list[Injected] = field(default_factory=list)
    proxy_restarts: int = 0
    is_complete: bool = False  # the final read has covered every broker
    _start_s: float = field(default_factory=time.monotonic)
    _phase_name: str = "start"

    def execute(self, directory: Path) -> RunRecord:
        """Run the scenario on a new cluster in this directory.

        Every run ends with a record. An error of the harness or of the cluster becomes one of the record's
        problems, with its stack; the verdict is then unknown unless anomalies were found before.
        """
        started = datetime.now(UTC)
        try:
            self._on_stage(directory)
        except Exception as error:
            self.is_complete = False
            self.problems.append("".join(traceback.format_exception(error)))
        return self._record(started)

    def _on_stage(self, directory: Path) -> None:
        needs = {need for planned in self.scenario.faults for need in FAULTS[planned.fault].needs}
        brokers = self.scenario.brokers
        with self.stage.open(directory, brokers=brokers, partitions=PARTITIONS, needs=needs) as arena:
            self._under_load(arena, directory)
            self.anomalies += [one for one in check(self.history) if one.severity is not Severity.NORMAL]
            if arena.powered and (self.anomalies or self.problems):
                arena.powered.keep(directory / "kept")  # its disks end with the cluster

    def _under_load(self, arena: Arena, directory: Path) -> None:
        brokers, links, seed = arena.cluster.brokers, arena.links, self.scenario.seed
        urls = [links.url(broker) for broker in brokers] if links else arena.cluster.urls
        producers = self.scenario.producers
        shape = replace(SHAPE, producers=producers, transactions=min(producers, SHAPE.transactions))
        load = Workload(urls, arena.topic, partitions=PARTITIONS, seed=seed, shape=shape)
        ends_s = time.monotonic() + QUIET_S + self.scenario.seconds
        group = GroupLoad(directory / "group", urls, arena.topic, seed, ends_s)
        injector = Injector(arena, self.scenario, self._start_s)
        with group, self._watching(arena, load, injector, group):
            try:
                with load:
                    self._phase("quiet", lambda: time.sleep(QUIET_S))
                    group.check()
                    self._phase("faults", injector.run)
                    group.check()
                    self._phase("heal", lambda: self._heal(arena))
                    self._phase("quiet", lambda: time.sleep(QUIET_S))
                self._phase("final read", lambda: self._final_read(arena, load, group))
            except (WorkloadFailed, ClusterFailed) as error:
                self.problems.append("".join(traceback.format_exception(error)))
            finally:
                injector.stop()
                self.history = load.history
        self.injected = sorted(injector.injected, key=lambda fault: fault.begun_s)
        self.left_out = injector.left_out
        self.proxy_restarts = links.restarts if links else 0
        self.problems += [*injector.problems, *load.surprises]
        if isinstance(arena.cluster, Cluster):
            self.problems += arena.cluster.broken()
        self.problems += _without_effect(self.injected)

    def _heal(self, arena: Arena) -> None:
        # A remote cluster reports which brokers are alive, and notices them late after links were cut.
        seen_by = time.monotonic() + (0 if isinstance(arena.cluster, Cluster) else HEAL_S)
        while set(arena.cluster.brokers) - set(arena.cluster.running) and time.monotonic() < seen_by:
            time.sleep(0.2)
        for broker in sorted(set(arena.cluster.brokers) - set(arena.cluster.running)):
            self.problems.append(f"broker {broker} does not run after all faults have ended")
            if isinstance(arena.cluster, Cluster):
                arena.cluster.launch(broker)
        arena.wait_healthy(HEAL_S)

    def _final_read(self, arena: Arena, load: Workload, group: GroupLoad) -> None:
        self.anomalies += group.drain(load.history)
        self.anomalies += read_every_broker(arena, load.history)
        self.is_complete = True

    def _phase(self, name: str, work: Callable[[], None]) -> None:
        begun_s, self._phase_name = self._now_s(), name
        try:
            work()
        finally:
            self.phases.append(Phase(name=name, begun_s=begun_s, ended_s=self._now_s()))

    def _now_s(self) -> float:
        return time.monotonic() - self._start_s

    @contextmanager
    def _watching(self, arena: Arena, load: Workload, injector: Injector, group: GroupLoad) -> Iterator[None]:
        """Sample leaders and show progress during the block, on a thread.

        Ends the faults if processes of members or of a broker end without a fault, because the rest of the
        run would prove little.
        """
        ending = threading.Event()

        def sample() -> None:
            while not ending.wait(SAMPLE_S):
                if group.has_ended or arena.abandoned:
                    injector.give_up()
                leaders = self._sample_leaders(arena)
                self.watch(
                    Progress(
                        self._now_s(),
                        self._phase_name,
                        load.acknowledged,
                        load.transactions,
                        injector.active,
                        len(injector.injected),
                        leaders,
                    )
                )

        thread = threading.Thread(target=sample, name="watch", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ending.set()
            thread.join()

    def _sample_leaders(self, arena: Arena) -> dict[int, int | None]:
        now_s = self._now_s()
        known = {row.partition: row for row in self.leaderships}  # the newest leaderships
        for partition, row in arena.partitions().items():
            last = known.get(partition)
            if last is None or (last.leader, last.term) != (row.leader, row.leader_epoch):
                self.leaderships.append(
                    Leadership(
                        at_s=now_s,
                        topic=arena.topic,
                        partition=partition,
                        leader=row.leader,
                        term=row.leader_epoch,
                    )
                )
        return {row.partition: row.leader for row in self.leaderships}

    def _record(self, started: datetime) -> RunRecord:
        found = verdict(self.anomalies)
        return RunRecord(
            verdict=found.value if self.is_complete or found is Verdict.INVALID else "unknown",
            command=self.command,
            version=version("raftlog"),
            machine=f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
            started_at=started.isoformat(timespec="seconds"),
            abilities=self.stage.abilities(),
            scenario=self.scenario,
            phases=tuple(self.phases),
            injected=tuple(self.injected),
            leaderships=tuple(self.leaderships),
            counts=counted(self.history, self.anomalies, self.injected, self._start_s),
            anomalies=shown(self.history, self.anomalies, self._start_s),
            problems=tuple(self.problems),
            proxy_restarts=self.proxy_restarts,
            left_out=tuple(self.left_out),
            history_offset_s=self._start_s,
        )


def counted(
    history: History, anomalies: Sequence[Anomaly], injected: Sequence[Injected], start_s: float
) -> Counts:
    """Count values by outcome. A send is quiet if no fault was active during the send or shortly before it.

    Sends in transactions count as values, but are left out of the rates, because many transactions are
    aborted on purpose.
    """
    single = [send for send in history.sends if send.txn is None]
    quiet = [send for send in single if not _is_disturbed(send, injected, start_s)]
    kinds = Counter(found.kind for found in anomalies)
    transactions = Counter(
        {send.txn: send.outcome for send in history.sends if send.txn is not None}.values()
    )
    return Counts(
        acknowledged=history.count(Outcome.ACKNOWLEDGED),
        failed=sum(send.outcome is Outcome.FAILED for send in single),
        unknown=history.count(Outcome.UNKNOWN),
        lost=count_lost(anomalies),
        duplicated=kinds["duplicate"],
        commits=sum(commit.outcome is Outcome.ACKNOWLEDGED for commit in history.commits),
        committed_reads=len(history.committed),
        transactions_committed=transactions[Outcome.ACKNOWLEDGED],
        transactions_aborted=transactions[Outcome.FAILED],
        transactions_unknown=transactions[Outcome.UNKNOWN],
        ok_rate=_ok_rate(single),
        ok_rate_quiet=_ok_rate(quiet),
    )


def _is_disturbed(send: Send, injected: Sequence[Injected], start_s: float) -> bool:
    begun_s, ended_s = send.invoked_s - start_s, send.completed_s - start_s
    return any(fault.begun_s < ended_s and begun_s < fault.ended_s + SETTLE_S for fault in injected)


def _ok_rate(sends: Sequence[Send]) -> float:
    return sum(send.outcome is Outcome.ACKNOWLEDGED for send in sends) / len(sends) if sends else 1.0


def _without_effect(injected: Sequence[Injected]) -> list[str]:
    """Return the kinds of faults that were injected and never had an effect."""
    effects: dict[str, int] = defaultdict(int)
    for fault in injected:
        effects[fault.fault] += fault.effects
    return [f"{name} had no effect" for name, sum_ in sorted(effects.items()) if not sum_]
