"""All replicas of one broker: the metadata says which there should be, this makes it so.

Decides: when a replica is opened, closed or deleted. Leaves to others: placement (``controller``), how a
log begins (``opener``), where its files lie (``directories``), whether a replica that is wanted no more may
go (``deletion``), serving (``replica``), reclaiming space (``retention_manager``).

One task follows the metadata, so openings and deletions never overtake one another. A replica
whose log is damaged, whose disk fails, or that broke an invariant, is reported and stops no other.

A folder is given up only by confirmed metadata that is no older than what was acted on here, and moves to the
trash. A topic's folder carries its id, which is never used twice. A sweep after the start finds what is left.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from partitions.hosting.deletion import Departures
from partitions.hosting.directories import Folders
from partitions.hosting.opener import MetadataBehind, Openings, log_settings
from partitions.hosting.replica_supervisor import ReplicaSupervisor
from partitions.hosting.retention_manager import Kept, RetentionKeeper, retention_limits
from partitions.hosting.trash import Trash
from partitions.metadata import topic_config
from partitions.metadata.image import MetadataImage, PartitionInfo, TopicInfo
from partitions.metadata.producer_ids import ProducerIds
from partitions.metadata.source import MetadataSource
from partitions.replica.producer_admission import PRODUCERS_MAX, ProducerAdmission
from partitions.replica.replica import PartitionReplica
from partitions.routing import replica_calls
from partitions.values import key_of
from raftlog.clock import Clock
from raftlog.errors import LogCorrupt, RaftlogError
from raftlog.node.blocking import RunBlocking
from raftlog.node.group.raft_group import RaftGroup
from raftlog.node.group_host import GroupHost
from raftlog.repair.repairer import Repairer
from raftlog.repair.scheduler import RepairScheduler
from raftlog.storage.broken_groups import BrokenGroups
from raftlog.storage.filesystem import Buffer, Filesystem, is_disk_full
from raftlog.storage.replica_registry import ReplicaRegistry
from raftlog.storage.segmented_log import SegmentedLog
from raftlog.storage.tombstones import LetGo
from raftlog.types import BEFORE_LOG, METADATA_GROUP, EntryId, NodeId, TopicPartition

_log = logging.getLogger("raftlog.partitions")

OPEN_AT_ONCE: Final = 32  # logs, on the threads of ``run_blocking``; registered together
CONFIRM_TIMEOUT_MS: Final = 5000
CONFIRM_AGAIN_S: Final = 0.1
OPEN_AGAIN_S: Final = 1.0  # where the disk was full
SWEEP_AGAIN_S: Final = 5.0
LEAVE_AGAIN_S: Final = 0.5  # a replica that is wanted no more asks whether it may go
CAMPAIGN_AGAIN_S: Final = (0.05, 0.1, 0.2)  # the other replicas open a moment later

Key = tuple[str, int]


@dataclass(slots=True)
class _Held:
    """One replica that is here. Without ``replica`` it was not opened: for ``failure``, or since it goes."""

    topic: TopicInfo
    partition: PartitionInfo
    log: SegmentedLog | None = None
    forgotten: EntryId = BEFORE_LOG  # the newest entry of an earlier life here
    replica: PartitionReplica | None = None
    failure: str = ""
    error: BaseException | None = None  # what it failed with
    is_short_of_room: bool = False  # the disk was full, or the metadata is behind: it is opened again
    is_leaving: bool = False  # the metadata wants it no more
    let_go: LetGo | None = None  # and so does the leader

    @property
    def key(self) -> Key:
        """Its topic's name and its partition."""
        return self.topic.name, self.partition.partition


class PartitionManager:
    """Opens, closes and deletes this broker's replicas. All on the event loop's thread."""

    def __init__(
        self,
        host: GroupHost,
        metadata: MetadataSource,
        filesystem: Filesystem,
        data_directory: str,
        clock: Clock,
        *,
        retention_check_ms: int = 60_000,
        run_blocking: RunBlocking = asyncio.to_thread,
        repairer: Repairer | None = None,
        registry: ReplicaRegistry,
        producer_ids: ProducerIds,
        producers_max: int = PRODUCERS_MAX,
        trash: Trash | None = None,
    ) -> None:
        self._host = host
        self._metadata = metadata
        self._clock = clock
        self._run_blocking = run_blocking
        self._registry = registry
        self.trash = trash or Trash(filesystem, data_directory, clock, run_blocking)
        self._folders = Folders(filesystem, data_directory, run_blocking, self.trash)
        self.broken = BrokenGroups(filesystem, data_directory, clock)
        self._openings = Openings(
            host.node_id, filesystem, data_directory, self._folders, clock, registry, self.broken
        )
        self._held: dict[Key, _Held] = {}
        self._seen: Mapping[str, TopicInfo] = {}
        self._seen_version = -1
        self._waits = False  # some replica is not opened before the metadata is confirmed
        self._changed = asyncio.Event()
        self._settled = asyncio.Event()
        self._is_sure = False  # the metadata has been confirmed
        self._tasks: dict[asyncio.Task[None], None] = {}  # in the order in which they began
        self._retention_check_ms = retention_check_ms
        self.retention = RetentionKeeper(host, self._kept)
        self.replicas: dict[Key, PartitionReplica] = {}
        self.admission = ProducerAdmission(metadata, self.replicas.values, clock, producer_ids, producers_max)
        forget = (lambda directory: None) if repairer is None else repairer.service.forget
        place, close, look = self._folders.of_partition, self._close_replica, self._changed.set
        self.supervisor = ReplicaSupervisor(host.node_id, self._held, place, close, look, forget)
        self.repair_scheduler = None if repairer is None else RepairScheduler(repairer, self.supervisor)
        self._departures = Departures(host.node_id, lambda: metadata.image, self.replicas, host.calls)
        host.calls.serve(replica_calls.PREPARED, self._serve_prepared)

    @property
    def failures(self) -> dict[Key, str]:
        """Replicas that should be here and do not work, and why."""
        return {key: failure for key in self._held if (failure := self.failure_of(key))}

    def failure_of(self, key: Key) -> str:
        """Why a replica that should be here does not work; empty where it works, or none should be here."""
        held = self._held.get(key)
        if held is None:
            return ""
        if held.replica is None:
            return held.failure
        stopped = held.replica.group.stopped
        return "" if stopped is None else f"{type(stopped).__name__}: {stopped}"

    async def start(self) -> None:
        """Follow the metadata from now on."""
        await self._folders.make()
        self._metadata.subscribe(self._image_changed)
        self._changed.set()
        self._begin(self._follow())
        self._begin(self._remove_leftovers_when_sure())
        self._begin(self._ask_to_leave())
        self._begin(self.retention.run(self._retention_check_ms))
        self._begin(self.trash.run())
        if self.repair_scheduler is not None:
            self._begin(self.repair_scheduler.run())

    async def stop(self) -> None:
        """Stop following; the replicas' groups are closed by the host."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def settled(self) -> None:
        """Return once the replicas here are those of the metadata here."""
        while self._changed.is_set() or self._seen is not self._metadata.image.topics or self._waits:
            self._settled.clear()
            await self._settled.wait()

    def _image_changed(self, image: MetadataImage) -> None:
        self._changed.set()

    async def _follow(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._catch_up()
            except OSError as error:
                _log.error("the metadata is not followed for now: %s", error)
                asyncio.get_running_loop().call_later(OPEN_AGAIN_S, self._changed.set)

    async def _catch_up(self) -> None:
        """Do what the metadata of now asks for."""
        image, is_sure = self._metadata.image, self._is_sure  # it may be confirmed while logs are opened
        if not self._knows_this_disk(image):
            return
        self._waits = True  # until the end of this pass says otherwise
        if is_sure and (image.topics is not self._seen or not self._folders.may_give_up):
            await self._folders.note(image)
        if image.topics is not self._seen:
            await self._delete_gone(image)
            await self._open(await self._missing(image), may_begin=is_sure)
            self._seen = image.topics
        self._seen_version = image.version
        short = [held for held in self._held.values() if held.is_short_of_room]
        await self._open(short, may_begin=is_sure)
        self._waits = any(held.is_short_of_room and not held.error for held in self._held.values())
        await self._let_go()
        if is_sure and not self._folders.is_swept:
            await self._folders.sweep(image)
            await self._forget_gone(image)
        self._settled.set()

    async def _forget_gone(self, image: MetadataImage) -> None:
        """Keep the registry as long as the metadata. ``image`` has been confirmed to be current."""
        groups = {partition.group_id for topic in image.topics.values() for partition in topic.partitions}
        try:
            await self._run_blocking(lambda: self._registry.keep_only({METADATA_GROUP, *groups}))
        except OSError as error:
            _log.error("the registry of replicas stays longer than it must: %s", error)

    def _knows_this_disk(self, image: MetadataImage) -> bool:
        """Whether the metadata here knows that this disk is the one it speaks of, or began from nothing."""
        broker = image.brokers.get(self._host.node_id)
        return broker is not None and broker.disk_id == self._registry.disk_id

    async def _missing(self, image: MetadataImage) -> list[_Held]:
        """Replicas that should be here and are not; those that are learn what is new."""
        missing: list[_Held] = []
        me = self._host.node_id
        for topic in image.topics.values():
            seen = self._seen.get(topic.name)
            if seen is topic:
                continue
            left = [] if seen is not None else await self._folders.partitions_in(topic)
            for partition in topic.partitions:
                held = self._held.get((topic.name, partition.partition))
                wanted = me in partition.holders
                if held is not None:
                    self._reconfigure(held, topic, partition, is_leaving=not wanted)
                    if wanted and held.replica is None and held.error is None:  # else it is repaired first
                        missing.append(held)
                elif wanted:
                    missing.append(_Held(topic, partition))
                elif partition.partition in left:  # it is to go; until its leader lets it, it takes part
                    missing.append(_Held(topic, partition, is_leaving=True))
        return missing

    async def _open(self, missing: list[_Held], *, may_begin: bool) -> None:
        young: list[RaftGroup[None]] = []
        for at in range(0, len(missing), OPEN_AT_ONCE):
            some = missing[at : at + OPEN_AT_ONCE]
            await asyncio.gather(*(self._open_log(held, may_begin=may_begin) for held in some))
            await self._register(some)
            for held in some:
                await self._open_replica(held, young)
            await asyncio.sleep(0)
        if young:
            self._begin(self._campaign_again(young))

    async def _open_log(self, held: _Held, *, may_begin: bool) -> None:
        held.is_short_of_room = False
        held.failure = self.broken.reasons.get(held.partition.group_id, "")
        if held.failure:
            return
        try:
            with self._host.blames(held.partition.group_id):
                held.log, held.forgotten = await self._run_blocking(
                    lambda: self._openings.open(held.topic, held.partition, may_begin=may_begin)
                )
        except (LogCorrupt, OSError) as error:
            self._note_failure(held, error)

    async def _register(self, opened: Sequence[_Held]) -> None:
        """Note that these are here, before any of them says a word: their files may be lost later."""
        groups = [held.partition.group_id for held in opened if held.log is not None]
        try:
            await self._run_blocking(lambda: self._registry.add(groups))
        except OSError as error:
            for held in opened:
                if held.log is not None:
                    self._note_failure(held, error)
                    log, held.log = held.log, None
                    await self._run_blocking(log.close)

    async def _open_replica(self, held: _Held, young: list[RaftGroup[None]]) -> None:
        topic, partition = held.topic, held.partition
        self._held[topic.name, partition.partition] = held
        self.supervisor.hand_over(held)
        if held.log is None:
            return
        replica = PartitionReplica(
            TopicPartition(*held.key), partition.replicas, _config(topic), self._clock, self.admission
        )
        membership = self._openings.first_membership(partition)
        is_preferred = partition.replicas[0] == self._host.node_id and bool(membership.voters)
        is_young = held.log.restored(membership).hard_state.term == 0
        try:
            group = self._host.open_group(
                partition.group_id,
                held.log,
                replica.machine,
                membership,
                replica,
                campaign_first=is_preferred,
                forgotten=held.forgotten,
            )
        except (LogCorrupt, OSError) as error:
            self._note_failure(held, error)
            log, held.log = held.log, None
            await self._run_blocking(log.close)
            return
        replica.attach(group)
        held.replica = replica
        self.replicas[topic.name, partition.partition] = replica
        if is_preferred and is_young and len(partition.replicas) > 1:
            young.append(group)

    def _reconfigure(
        self, held: _Held, topic: TopicInfo, partition: PartitionInfo, *, is_leaving: bool
    ) -> None:
        held.topic, held.partition = topic, partition
        held.is_leaving = is_leaving
        held.let_go = held.let_go if is_leaving else None
        if held.replica is not None and held.log is not None:
            held.replica.reconfigure(_config(topic))
            held.log.reconfigure(log_settings(topic))

    async def _campaign_again(self, groups: list[RaftGroup[None]]) -> None:
        """The other replicas of a new partition may open after the first call for votes: call again."""
        for pause_s in CAMPAIGN_AGAIN_S:
            await asyncio.sleep(pause_s)
            groups = [group for group in groups if group.leader is None and group.stopped is None]
            for group in groups:
                group.campaign()

    def _note_failure(self, held: _Held, error: Exception) -> None:
        held.failure = f"{type(error).__name__}: {error}"
        held.error = None if isinstance(error, MetadataBehind) else error
        held.is_short_of_room = held.error is None or (isinstance(error, OSError) and is_disk_full(error))
        if held.is_short_of_room:
            asyncio.get_running_loop().call_later(OPEN_AGAIN_S, self._changed.set)
        tell = _log.debug if held.error is None else _log.error  # all replicas begin by waiting for metadata
        tell("%s/%s is not served: %s", held.topic.name, held.partition.partition, held.failure)

    async def _close_replica(self, key: Key) -> None:
        held = self._held[key]
        self.supervisor.hand_over(held)
        held.replica = held.log = None
        if self.replicas.pop(key, None) is not None:
            await self._host.close_group(held.partition.group_id)

    async def _delete_gone(self, image: MetadataImage) -> None:
        """Close what belongs to topics that are gone, and to groups that a recovery has given up."""
        folders: dict[str, None] = {}
        for held in list(self._held.values()):
            topic = image.topics.get(held.topic.name)
            if topic is None or topic.topic_id != held.topic.topic_id:
                folders[self._folders.of_topic(held.topic)] = None
                if held.replica is not None:
                    held.replica.topic_deleted()
                await self._close(held)
            elif not (partition := topic.partitions[held.key[1]]).continues(held.partition):
                await self._close(held)
                await self._folders.give_up(self._folders.of_partition(topic, held.key[1]), "replaced")
            elif partition.group_id != held.partition.group_id:
                await self._close(held)
                if self._host.node_id not in partition.holders:
                    self._held[held.key] = _Held(topic, partition, is_leaving=True)
        for folder in folders:
            await self._folders.give_up(folder, "deleted")

    async def _close(self, held: _Held) -> None:
        held.is_leaving = True  # and so it gets no other treatment
        if self.repair_scheduler is not None:
            await self.repair_scheduler.end(TopicPartition(*held.key))
        await self._close_replica(held.key)
        del self._held[held.key]
        await asyncio.sleep(0)

    async def _ask_to_leave(self) -> None:
        while True:
            await asyncio.sleep(LEAVE_AGAIN_S)
            for held in [held for held in self._held.values() if held.is_leaving and not held.let_go]:
                asked = held.partition
                let_go = await self._departures.may_delete(TopicPartition(*held.key), asked)
                if let_go and held.partition is asked:  # nothing is new since it was asked
                    held.let_go = let_go
                    self._changed.set()

    async def _let_go(self) -> None:
        """Delete replicas whose leader has said that they may go. Term and vote stay behind."""
        for held, leave in [(held, held.let_go) for held in self._held.values() if held.let_go]:
            if not self._folders.may_give_up:
                return
            folder = self._folders.of_partition(held.topic, held.partition.partition)
            await self._close(held)
            try:
                await self._run_blocking(partial(self._openings.bury, held.partition.group_id, folder, leave))
            except (LogCorrupt, OSError) as error:
                _log.error("%s stays for now, for its vote cannot be kept: %s", folder, error)
                self._held[held.key] = _Held(held.topic, held.partition, is_leaving=True)
                continue
            if not await self._folders.give_up(folder, "moved-away"):
                self._held[held.key] = _Held(held.topic, held.partition, is_leaving=True)

    async def _serve_prepared(
        self, sender: NodeId, head: bytes, payload: memoryview
    ) -> tuple[bytes, Sequence[Buffer]]:
        """Whether a replica is open here, by metadata as new as the leader's that asks."""
        (target, group_id), (version,) = replica_calls.unpack_place(head, 1)
        held = self._held.get(key_of(target))
        is_open = (
            self._seen_version >= version
            and held is not None
            and not held.is_leaving
            and held.replica is not None
            and held.partition.group_id == group_id
            and held.replica.group.stopped is None
        )
        return replica_calls.pack_numbers(is_open), ()

    async def _remove_leftovers_when_sure(self) -> None:
        while not self._is_sure:
            try:
                image = await self._metadata.current_image(CONFIRM_TIMEOUT_MS)
            except RaftlogError as error:
                _log.info("folders of deleted topics stay until the metadata is confirmed: %s", error)
            else:
                self._is_sure = bool(image.bootstrap_id)  # empty: the first controller is not done yet
            await asyncio.sleep(0 if self._is_sure else CONFIRM_AGAIN_S)
        while True:
            if not self._folders.is_swept:
                self._changed.set()
            await asyncio.sleep(SWEEP_AGAIN_S)

    def _kept(self) -> Iterator[Kept]:
        for held in list(self._held.values()):
            if held.replica is None or held.log is None or held.replica.group.stopped is not None:
                continue
            if (limits := retention_limits(_config(held.topic))) is not None:
                yield Kept(held.replica.group, held.log, limits)

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = self._host.begin(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)


def _config(topic: TopicInfo) -> dict[str, int | str]:
    """All settings; how many replicas are a majority depends on how many there are, which may change."""
    return {**topic_config.DEFAULTS, **topic.config}
