"""All replicas of one broker: the metadata says which there should be, this makes it so.

Decides: when a replica is opened, closed or deleted, and where its files lie. Leaves to others:
placement (``controller``), serving (``replica``), reclaiming space (``retention_keeper``).

One task follows the metadata, so openings and deletions never overtake one another. A replica
whose log is damaged, or whose disk fails, is reported and does not stop the others.

What is deleted stays deleted. A topic's folder carries its id, which is never used twice, so a
topic that is created again never meets old bytes. Should the power go out in the midst of a
deletion, the rest is removed at the next start: every folder whose topic the metadata does not
know, but only once that metadata has been confirmed to be current, and only where it is of the
same bootstrap as the folders: a metadata log that begins from nothing deletes nothing.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from partitions import topic_config
from partitions.controller.image import MetadataImage, PartitionInfo, TopicInfo
from partitions.repairer import Repairer
from partitions.replica import PartitionReplica
from partitions.retention_keeper import Kept, RetentionKeeper
from partitions.sick_bay import SickBay
from partitions.ward import ReplicaWard
from raftlog.clock import Clock
from raftlog.core.membership import Membership
from raftlog.errors import LogCorrupt, RaftlogError
from raftlog.node.group_host import GroupHost
from raftlog.node.raft_group import RaftGroup
from raftlog.storage.filesystem import Filesystem, is_disk_full
from raftlog.storage.retention import RetentionLimits
from raftlog.storage.segmented_log import LogSettings, SegmentedLog
from raftlog.types import TopicId, TopicPartition

_log = logging.getLogger("raftlog.partitions")

BOOTSTRAP_FILE: Final = "bootstrap_id"
FOLDER_NAME_MAX: Final = 255  # bytes, on every usual filesystem
OPEN_AT_ONCE: Final = 8  # logs, on as many threads
CONFIRM_TIMEOUT_MS: Final = 5000
CONFIRM_AGAIN_S: Final = 0.1
OPEN_AGAIN_S: Final = 1.0  # where the disk was full
SWEEP_AGAIN_S: Final = 5.0
CAMPAIGN_AGAIN_S: Final = (0.05, 0.1, 0.2)  # the other replicas open a moment later

_FOLDER: Final = re.compile(r"[A-Za-z0-9._-]+-([0-9a-f]{32})")

Key = tuple[str, int]
Result = TypeVar("Result")


class MetadataSource(Protocol):
    """The part of ``controller.service.Controller`` that is needed here."""

    @property
    def image(self) -> MetadataImage:
        """The newest metadata here."""

    def subscribe(self, listener: Callable[[MetadataImage], None]) -> None:
        """Call ``listener`` with every new image."""

    async def current_image(self, timeout_ms: int) -> MetadataImage:
        """Metadata that holds everything acknowledged before this call."""


class RunBlocking(Protocol):
    """Runs what waits for the disk away from the loop; ``asyncio.to_thread`` does."""

    def __call__(self, work: Callable[[], Result], /) -> Awaitable[Result]:
        """The result of ``work``, or what it raised."""


@dataclass(slots=True)
class _Held:
    """One replica that should be here. Without ``replica`` it could not be opened, for ``failure``."""

    topic: TopicInfo
    partition: PartitionInfo
    log: SegmentedLog | None = None
    replica: PartitionReplica | None = None
    failure: str = ""
    error: BaseException | None = None  # what it failed with
    is_short_of_room: bool = False  # the disk was full: it is opened again


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
    ) -> None:
        self._host = host
        self._metadata = metadata
        self._filesystem = filesystem
        self._data_directory = data_directory
        self._clock = clock
        self._run_blocking = run_blocking
        self._held: dict[Key, _Held] = {}
        self._seen: Mapping[str, TopicInfo] = {}
        self._changed = asyncio.Event()
        self._settled = asyncio.Event()
        self._is_sure = False  # the metadata has been confirmed, and what it does not know may go
        self._is_swept = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._retention_check_ms = retention_check_ms
        self.retention = RetentionKeeper(host, self._kept)
        self.replicas: dict[Key, PartitionReplica] = {}
        self.ward = ReplicaWard(
            host.node_id, self._held, self._directory, self._close_failed, self._changed.set
        )
        self.sick_bay = None if repairer is None else SickBay(repairer, self.ward)

    @property
    def failures(self) -> dict[Key, str]:
        """Replicas that should be here and do not work, and why."""
        failed: dict[Key, str] = {}
        for key, held in self._held.items():
            if held.replica is None:
                failed[key] = held.failure
            elif (stopped := held.replica.group.stopped) is not None:
                failed[key] = f"{type(stopped).__name__}: {stopped}"
        return failed

    async def start(self) -> None:
        """Follow the metadata from now on."""
        await self._run_blocking(lambda: self._filesystem.make_directories(self._data_directory))
        self._metadata.subscribe(self._image_changed)
        self._changed.set()
        self._begin(self._follow())
        self._begin(self._remove_leftovers_when_sure())
        self._begin(self.retention.run(self._retention_check_ms))
        if self.sick_bay is not None:
            self._begin(self.sick_bay.run())

    async def stop(self) -> None:
        """Stop following; the replicas' groups are closed by the host."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def settled(self) -> None:
        """Return once the replicas here are those of the metadata here."""
        while self._changed.is_set() or self._seen is not self._metadata.image.topics:
            self._settled.clear()
            await self._settled.wait()

    # Following the metadata.

    def _image_changed(self, image: MetadataImage) -> None:
        self._changed.set()

    async def _follow(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            image = self._metadata.image
            if image.topics is not self._seen:
                await self._delete_gone(image)
                await self._open(self._missing(image))
                self._seen = image.topics
            await self._open([held for held in self._held.values() if held.is_short_of_room])
            if self._is_sure and not self._is_swept:
                self._is_swept = await self._remove_leftovers(image)
            self._settled.set()

    def _missing(self, image: MetadataImage) -> list[_Held]:
        """Replicas that should be here and are not; those that are learn what is new."""
        missing: list[_Held] = []
        for topic in image.topics.values():
            if self._seen.get(topic.name) is topic:
                continue
            for partition in topic.partitions:
                held = self._held.get((topic.name, partition.partition))
                if held is not None:
                    self._reconfigure(held, topic)
                elif self._host.node_id in partition.replicas:
                    missing.append(_Held(topic, partition))
        return missing

    async def _open(self, missing: list[_Held]) -> None:
        young: list[RaftGroup[None]] = []
        for at in range(0, len(missing), OPEN_AT_ONCE):
            some = missing[at : at + OPEN_AT_ONCE]
            await asyncio.gather(*(self._open_log(held) for held in some))
            for held in some:
                self._open_replica(held, young)
            await asyncio.sleep(0)
        if young:
            self._begin(self._campaign_again(young))

    async def _open_log(self, held: _Held) -> None:
        held.is_short_of_room = False
        directory = self._directory(held.topic, held.partition.partition)
        settings = log_settings(held.topic)
        try:
            held.log = await self._run_blocking(
                lambda: SegmentedLog.open(self._filesystem, directory, settings, self._clock)
            )
        except (LogCorrupt, OSError) as error:
            self._note_failure(held, error)

    def _open_replica(self, held: _Held, young: list[RaftGroup[None]]) -> None:
        topic, partition = held.topic, held.partition
        self._held[topic.name, partition.partition] = held
        if held.log is None:
            return
        replica = PartitionReplica(
            TopicPartition(topic.name, partition.partition), partition.replicas, _config(topic), self._clock
        )
        membership = Membership(frozenset(partition.replicas))
        is_preferred = partition.replicas[0] == self._host.node_id
        is_young = held.log.restored(membership).hard_state.term == 0
        try:
            group = self._host.open_group(
                partition.group_id,
                held.log,
                replica.machine,
                membership,
                replica,
                campaign_first=is_preferred,
            )
        except (LogCorrupt, OSError) as error:
            self._note_failure(held, error)
            held.log.close()
            held.log = None
            return
        replica.attach(group)
        held.replica = replica
        self.replicas[topic.name, partition.partition] = replica
        if is_preferred and is_young and len(partition.replicas) > 1:
            young.append(group)

    def _reconfigure(self, held: _Held, topic: TopicInfo) -> None:
        held.topic = topic
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
        held.error = error
        if isinstance(error, OSError) and is_disk_full(error):
            held.is_short_of_room = True
            asyncio.get_running_loop().call_later(OPEN_AGAIN_S, self._changed.set)
        _log.error("%s/%s is not served: %s", held.topic.name, held.partition.partition, held.failure)

    def _close_failed(self, key: Key) -> None:
        held = self._held[key]
        held.replica = held.log = None
        if self.replicas.pop(key, None) is not None:
            self._host.close_group(held.partition.group_id)

    # Deleting.

    async def _delete_gone(self, image: MetadataImage) -> None:
        folders: dict[str, None] = {}
        for key, held in list(self._held.items()):
            topic = image.topics.get(key[0])
            if topic is not None and topic.topic_id == held.topic.topic_id:
                continue
            folders[self.folder(held.topic)] = None
            del self._held[key]
            if held.replica is not None:
                del self.replicas[key]
                held.replica.topic_deleted()
                self._host.close_group(held.partition.group_id)
                await asyncio.sleep(0)
        for folder in folders:
            await self._remove(folder)

    async def _remove_leftovers_when_sure(self) -> None:
        while not self._is_sure:
            try:
                image = await self._metadata.current_image(CONFIRM_TIMEOUT_MS)
            except RaftlogError as error:
                _log.info("folders of deleted topics stay until the metadata is confirmed: %s", error)
            else:
                self._is_sure = bool(image.bootstrap_id)  # empty: the first controller is not done yet
            await asyncio.sleep(0 if self._is_sure else CONFIRM_AGAIN_S)
        while not self._is_swept:
            self._changed.set()
            await asyncio.sleep(SWEEP_AGAIN_S)

    async def _remove_leftovers(self, image: MetadataImage) -> bool:
        """Remove folders of topics that are no more. ``image`` has been confirmed to be current.

        False when the disk would not let it, as a full one does: it is tried again.
        """
        try:
            is_ours = await self._run_blocking(lambda: self._is_same_bootstrap(image.bootstrap_id))
        except OSError as error:
            _log.error("%s cannot be swept yet: %s", self._data_directory, error)
            return False
        if not is_ours:
            _log.error("the folders in %s belong to other metadata: none is removed", self._data_directory)
            return True
        known = {topic.topic_id for topic in image.topics.values()}
        for name in await self._run_blocking(lambda: self._filesystem.list_directory(self._data_directory)):
            found = _FOLDER.fullmatch(name)
            if found is not None and TopicId(found[1]) not in known:
                _log.info("removing %s: its topic was deleted", name)
                await self._remove(f"{self._data_directory}/{name}")
        return True

    def _is_same_bootstrap(self, bootstrap_id: str) -> bool:
        path = f"{self._data_directory}/{BOOTSTRAP_FILE}"
        try:
            return self._filesystem.read_file(path).decode(errors="replace") == bootstrap_id
        except FileNotFoundError:
            self._filesystem.replace_file(path, bootstrap_id.encode())
            return True

    async def _remove(self, folder: str) -> None:
        def remove() -> None:
            self._filesystem.remove_tree(folder)
            self._filesystem.sync_directory(self._data_directory)

        try:
            await self._run_blocking(remove)
        except OSError as error:
            _log.error("%s could not be removed, the next start tries again: %s", folder, error)

    # Helpers.

    def _kept(self) -> Iterator[Kept]:
        for held in list(self._held.values()):
            if held.replica is None or held.log is None or held.replica.group.stopped is not None:
                continue
            config = _config(held.topic)
            if config["cleanup.policy"] == "delete":
                limits = RetentionLimits(
                    retention_ms=topic_config.number(config, "retention.ms"),
                    retention_bytes=topic_config.number(config, "retention.bytes"),
                )
                yield Kept(held.replica.group, held.log, limits)

    def _directory(self, topic: TopicInfo, partition: int) -> str:
        return f"{self.folder(topic)}/Partition-{partition}"

    def folder(self, topic: TopicInfo) -> str:
        """Where a topic's partitions lie."""
        return f"{self._data_directory}/{folder_name(topic)}"

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._host.fail(error)


def folder_name(topic: TopicInfo) -> str:
    """The topic's name, as much of it as a folder may have, and its id."""
    id_part = f"-{topic.topic_id}"
    return topic.name[: FOLDER_NAME_MAX - len(id_part)] + id_part


def log_settings(topic: TopicInfo) -> LogSettings:
    """What storage must know of a topic's configuration."""
    config = _config(topic)
    return LogSettings(
        segment_bytes=topic_config.number(config, "segment.bytes"),
        segment_ms=topic_config.number(config, "segment.ms"),
    )


def _config(topic: TopicInfo) -> dict[str, int | str]:
    return topic_config.complete(topic.config, topic.replication_factor)
