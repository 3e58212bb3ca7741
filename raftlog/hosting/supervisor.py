"""Runs the tenants of one broker: opens their logs, watches for failures, reopens repaired replicas.

Decides: when a log is opened, and the state of each hosted replica. Leaves to others: which tenants exist
(``partitions.hosting``), when a failed replica is repaired (``raftlog.repair.scheduler``).

One lock orders openings and closings: files are never opened while they are closed, moved or removed. A
replica that has failed is closed, repaired and opened again; it stops no other replica.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from raftlog.errors import LogCorrupt, MachineFailed
from raftlog.exhaustion import exhaustion
from raftlog.hosting.hosted_replica import HostedReplica, HostedState
from raftlog.hosting.tenant import NotYet, Tenant
from raftlog.node.blocking import RunBlocking
from raftlog.node.group_host import GroupHost
from raftlog.node.threads import in_thread
from raftlog.repair.repairer import Repairer
from raftlog.repair.scheduler import FailedReplica, RepairScheduler
from raftlog.repair.target import RepairTarget
from raftlog.storage.broken_groups import BrokenGroups
from raftlog.storage.replica_registry import ReplicaRegistry
from raftlog.storage.segmented_log import SegmentedLog
from raftlog.types import GroupId

_log = logging.getLogger("raftlog.hosting")

OPEN_AT_ONCE: Final = 32  # logs, opened on the threads of ``run_blocking`` and registered together
OPEN_AGAIN_S: Final = 1.0  # the pause after a full disk, or if the tenant has to wait


class Supervisor:
    """Runs the tenants of one broker. For the event loop's thread only."""

    def __init__(
        self,
        host: GroupHost,
        registry: ReplicaRegistry,
        broken: BrokenGroups,
        *,
        repairer: Repairer | None = None,
        run_blocking: RunBlocking = in_thread,
    ) -> None:
        """Start without tenants. Without a ``repairer`` failed replicas stay closed."""
        self._host = host
        self._registry = registry
        self._broken = broken
        self._repairer = repairer
        self._run_blocking = run_blocking
        self._hosted: dict[GroupId, HostedReplica] = {}
        self._turn = asyncio.Lock()  # opening and closing
        self._waiting = asyncio.Event()
        self._listeners: list[Callable[[], None]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self.scheduler = None if repairer is None else RepairScheduler(repairer, self)
        host.on_replica_failed = self._replica_failed

    async def start(self) -> None:
        """Begin to open the hosted replicas."""
        duties = [self._open_waiting]
        if self.scheduler is not None:
            duties.append(self.scheduler.run)
        self._tasks = [self._host.begin_duty(each) for each in duties]

    async def stop(self) -> None:
        """Stop opening and repairing; the host closes the groups."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # The tenants.

    def host(self, tenant: Tenant) -> None:
        """Open this tenant's replica soon, and reopen it after failures."""
        assert tenant.group_id not in self._hosted, f"{tenant.name} is hosted already"
        self._hosted[tenant.group_id] = HostedReplica(tenant)
        self._waiting.set()

    def look_again(self) -> None:
        """Open the logs that can be opened: a condition that tenants wait for may hold now."""
        self._waiting.set()

    async def release(self, group_id: GroupId) -> None:
        """Return once the replica is closed and no repair of it runs: its files may be moved or removed."""
        hosted = self._hosted.get(group_id)
        if hosted is None:
            return
        hosted.state = HostedState.CLOSING
        if self.scheduler is not None:
            await self.scheduler.end(group_id)
        async with self._turn:
            await self._close(hosted)
            del self._hosted[group_id]

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` when replicas were opened or have failed.

        The listener must neither block nor raise.
        """
        self._listeners.append(listener)

    async def serving(self, group_id: GroupId) -> None:
        """Return once this replica serves. Raises ``OSError`` if a disk error prevents it."""
        changed = asyncio.Event()
        self.subscribe(changed.set)
        try:
            while (hosted := self._hosted[group_id]).state is not HostedState.SERVING:
                if isinstance(hosted.error, OSError):
                    raise hosted.error
                changed.clear()
                await changed.wait()
        finally:
            self._listeners.remove(changed.set)

    # The states.

    @property
    def is_opening(self) -> bool:
        """Whether a replica is waiting to be opened for the first time, or again after a repair."""
        return any(hosted.state is HostedState.OPENING for hosted in self._hosted.values())

    @property
    def counts(self) -> Counter[HostedState]:
        """The number of replicas in each state."""
        return Counter(hosted.state for hosted in self._hosted.values())

    def state_of(self, group_id: GroupId) -> HostedState | None:
        """The state of a replica; None if it is not hosted."""
        hosted = self._hosted.get(group_id)
        return None if hosted is None else hosted.state

    def reason_of(self, group_id: GroupId) -> str:
        """Why a hosted replica does not serve; empty if it serves, or if no error has occurred yet."""
        hosted = self._hosted.get(group_id)
        return "" if hosted is None else hosted.reason

    def directory_of(self, group_id: GroupId) -> str | None:
        """The directory of a hosted replica; None if it is not hosted."""
        hosted = self._hosted.get(group_id)
        return None if hosted is None else hosted.tenant.directory

    def serving_tenants(self) -> Iterator[Tenant]:
        """The tenants that take part in their groups."""
        for hosted in list(self._hosted.values()):
            if hosted.state is HostedState.SERVING:
                yield hosted.tenant

    # Opening and closing.

    async def _open_waiting(self) -> None:
        self._waiting.set()  # an error may have ended the previous round
        while True:
            await self._waiting.wait()
            self._waiting.clear()
            due = [hosted for hosted in self._hosted.values() if hosted.is_waiting]
            for at in range(0, len(due), OPEN_AT_ONCE):
                async with self._turn:
                    await self._open([hosted for hosted in due[at : at + OPEN_AT_ONCE] if hosted.is_waiting])
                await asyncio.sleep(0)
            self._tell()
            if any(hosted.is_waiting for hosted in self._hosted.values()):
                asyncio.get_running_loop().call_later(OPEN_AGAIN_S, self._waiting.set)

    async def _open(self, some: Sequence[HostedReplica]) -> None:
        opened = dict(zip(some, await asyncio.gather(*map(self._open_log, some)), strict=True))
        logs = {hosted: log for hosted, log in opened.items() if log is not None}
        await self._register(logs)
        for hosted, log in logs.items():
            await self._take_part(hosted, log)

    async def _open_log(self, hosted: HostedReplica) -> SegmentedLog | None:
        tenant = hosted.tenant
        if broken := self._broken.reasons.get(tenant.group_id):
            hosted.needs_operator(broken)
            return None
        try:
            with self._host.blames(tenant.group_id):
                try:
                    return await tenant.open_log()
                except NotYet as reason:
                    self._failed(hosted, reason)
        except (LogCorrupt, MachineFailed, OSError) as error:
            self._failed(hosted, error)
        finally:
            self.forget(tenant.directory)
        return None

    async def _register(self, logs: dict[HostedReplica, SegmentedLog]) -> None:
        """Register groups before their replicas send messages: a later loss of their files is
        then detected.
        """
        try:
            await self._run_blocking(lambda: self._registry.add([hosted.tenant.group_id for hosted in logs]))
        except Exception as error:  # also an unexpected one: the next round opens these logs again
            lack = error if isinstance(error, OSError) else exhaustion(error)
            for hosted, log in logs.items():
                if lack is not None:
                    self._failed(hosted, lack)
                await self._run_blocking(log.close)
            logs.clear()
            if lack is None:
                raise

    async def _take_part(self, hosted: HostedReplica, log: SegmentedLog) -> None:
        try:
            if hosted.is_waiting:  # otherwise it is to be closed
                with self._host.blames(hosted.tenant.group_id):
                    hosted.tenant.take_part(log)
                if hosted.has_failed:
                    _log.warning("%s serves again", hosted.tenant.name)
                hosted.serve()
                return
        except (LogCorrupt, MachineFailed, OSError) as error:
            self._failed(hosted, error)
            await self._close(hosted)  # the group may be open already
        await self._run_blocking(log.close)

    async def _close(self, hosted: HostedReplica) -> None:
        self.forget(hosted.tenant.directory)
        await hosted.tenant.leave()
        await self._host.close_group(hosted.tenant.group_id)

    def _failed(self, hosted: HostedReplica, error: Exception) -> None:
        before = hosted.reason
        hosted.fail(error)
        if hosted.reason != before:
            level = logging.DEBUG if isinstance(error, NotYet) else logging.ERROR
            _log.log(level, "%s does not serve: %s", hosted.tenant.name, hosted.reason)

    def _replica_failed(self, group_id: GroupId, error: BaseException) -> None:
        """Note that a replica has stopped with an error, although it was serving."""
        hosted = self._hosted.get(group_id)
        if hosted is not None:
            hosted.fail(error)
            self._tell()

    def _tell(self) -> None:
        for listener in list(self._listeners):
            listener()

    # Calls of the repair scheduler.

    def failed(self) -> Sequence[FailedReplica]:
        """The replicas that the scheduler must repair or reopen."""
        return [
            FailedReplica(
                hosted.tenant.name,
                hosted.error,
                RepairTarget(hosted.tenant.group_id, hosted.tenant.directory, hosted.tenant.peers),
            )
            for hosted in self._hosted.values()
            if hosted.error is not None and hosted.is_repairable
        ]

    async def take_offline(self, failed: FailedReplica) -> None:
        """Close a replica, so that only the repair has its files open."""
        hosted = self._hosted[failed.group_id]
        hosted.reason = f"{type(failed.error).__name__}: {failed.error}; it is being repaired"
        await self._close(hosted)

    def bring_online(self, failed: FailedReplica) -> None:
        """Open a replica again after its repair."""
        self._hosted[failed.group_id].open_again()
        self._waiting.set()

    def note(self, failed: FailedReplica, trouble: str) -> None:
        """Store and log why a replica does not serve yet, as text for people."""
        hosted = self._hosted[failed.group_id]
        if hosted.reason != trouble:
            hosted.reason = trouble
            _log.error("%s does not serve: %s", failed.name, trouble)

    def needs_operator(self, failed: FailedReplica, reason: str) -> None:
        """Store and log that no peer can help: an operator must act."""
        hosted = self._hosted[failed.group_id]
        if hosted.state is not HostedState.NEEDS_OPERATOR:
            _log.error("%s cannot be repaired: %s", failed.name, reason)
        hosted.needs_operator(reason)

    def forget(self, directory: str) -> None:
        """Discard the repair service's knowledge of a directory, whose files were opened or will change."""
        if self._repairer is not None:
            self._repairer.service.forget(directory)
