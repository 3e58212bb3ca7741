"""Hosts the replicas of partitions that the metadata places on this broker.

Decides: when a replica is hosted, released or deleted. Leaves to others: placement (``partitions.metadata``),
opening, closing and repair (``raftlog.hosting``), the paths of files (``directories``), permits to delete
replicas that the metadata no longer places here (``deletion``), serving (``partitions.replica``).

One task follows the metadata, so deletions happen in the order of the metadata's changes. A broker's metadata
may be old, so a directory is deleted (moved to the trash) only if the metadata is confirmed and no older than
the applied version. The name of a topic's directory has the topic's id, which is never reused. After a start,
a sweep finds directories of topics that were deleted while the broker was down.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

from partitions.hosting.deletion import DeletePermits
from partitions.hosting.directories import Folders
from partitions.hosting.hosted_partition import HostedPartition, Key, PartitionEnvironment
from partitions.hosting.opener import ReplicaOpener
from partitions.hosting.trash import Trash
from partitions.metadata.image import MetadataImage, TopicInfo
from partitions.metadata.producer_ids import ProducerIdCipher
from partitions.metadata.source import MetadataSource
from partitions.replica.derived import Derive
from partitions.replica.participant import JoinTransaction
from partitions.replica.producer_admission import PRODUCERS_MAX, ProducerAdmission
from partitions.replica.replica import PartitionReplica
from partitions.routing import rpc
from partitions.values import NOTHING_CONSUMED, Consumed, key_of
from raftlog.errors import InvalidRequest, RaftlogError
from raftlog.hosting.hosted_replica import HostedState
from raftlog.hosting.opener import LogOpener
from raftlog.hosting.supervisor import Supervisor
from raftlog.node.blocking import RunBlocking
from raftlog.node.group.raft_group import RaftGroup
from raftlog.node.group_host import GroupHost
from raftlog.node.rpc import handler_of
from raftlog.node.threads import in_thread
from raftlog.storage.broken_groups import BrokenGroups
from raftlog.types import METADATA_GROUP, GroupId, NodeId, TopicPartition

_log = logging.getLogger("raftlog.partitions")

CONFIRM_TIMEOUT_MS: Final = 5000
CONFIRM_AGAIN_S: Final = 0.1
HEAR_MS: Final = 1000
FOLLOW_AGAIN_S: Final = 1.0  # after a disk error
SWEEP_AGAIN_S: Final = 5.0
ASK_AGAIN_S: Final = 0.5  # between requests for delete permits
CAMPAIGN_AGAIN_S: Final = (0.05, 0.1, 0.2)  # pauses in which the other replicas open


class ReplicaManager:
    """Hosts, releases and deletes this broker's replicas. All on the event loop's thread."""

    def __init__(
        self,
        host: GroupHost,
        metadata: MetadataSource,
        supervisor: Supervisor,
        logs: LogOpener,
        broken: BrokenGroups,
        *,
        producer_ids: ProducerIdCipher,
        producers_max: int = PRODUCERS_MAX,
        run_blocking: RunBlocking = in_thread,
        trash: Trash | None = None,
        derive: Derive = lambda target: None,
        join: JoinTransaction | None = None,
        consumed: Mapping[GroupId, Consumed] = NOTHING_CONSUMED,
    ) -> None:
        """``broken`` has the groups that the supervisor does not open; ``join`` adds to transactions."""
        self._host = host
        self._metadata = metadata
        self._supervisor = supervisor
        self._registry = logs.registry
        self._run_blocking = run_blocking
        self.trash = trash or Trash(logs.filesystem, logs.data_directory, host.clock, run_blocking)
        self._folders = Folders(logs.filesystem, logs.data_directory, run_blocking, self.trash)
        self._opener = ReplicaOpener(host.node_id, logs, self._folders)
        self._broken = broken
        self._hosted: dict[Key, HostedPartition] = {}
        self._seen: Mapping[str, TopicInfo] = {}
        self._seen_version = -1
        self._is_following = False  # whether a pass is under way
        self._why_behind = ""  # error of the last pass; empty if it succeeded
        self._changed = asyncio.Event()
        self._settled = asyncio.Event()
        self._is_sure = False  # whether the metadata has been confirmed since the start
        self._may_begin = False  # whether the hosted replicas match confirmed metadata
        self._tasks: dict[asyncio.Task[None], None] = {}  # in the order in which they began
        self._hearing = asyncio.Lock()
        self._hearings = 0
        self._young: list[RaftGroup[None]] = []
        self.replicas: dict[Key, PartitionReplica] = {}
        held = self.replicas.values
        self.admission = ProducerAdmission(metadata, held, logs.clock, producer_ids, producers_max)
        self._environment = PartitionEnvironment(
            host,
            self._opener,
            logs.clock,
            run_blocking,
            self.admission,
            self.replicas,
            lambda: self._may_begin,
            self._elect_again,
            derive,
            join,
            consumed,
            self.hear,
        )
        self._permits = DeletePermits(host.node_id, lambda: metadata.image, self.replicas, host.calls)
        host.calls.serve(rpc.PREPARED, handler_of(rpc.Prepared, self._serve_prepared))
        supervisor.subscribe(self._settled.set)

    @property
    def failures(self) -> dict[Key, str]:
        """The replicas that should run on this broker but do not, with the reasons."""
        return {key: failure for key in self._hosted if (failure := self.failure_of(key))}

    def failure_of(self, key: Key) -> str:
        """The reason why a replica that should run here does not run; empty if it runs, or should not run
        here.
        """
        hosted = self._hosted.get(key)
        return "" if hosted is None else self._supervisor.reason_of(hosted.group_id)

    def directory_of(self, group_id: GroupId) -> str | None:
        """The directory of a group's replica on this broker; None if this broker has no replica of the group.

        Raises ``InvalidRequest`` until the hosted replicas match confirmed metadata.
        """
        directory = self._supervisor.directory_of(group_id)
        if directory is None and not self._may_begin:
            raise InvalidRequest(
                f"this broker does not know yet whether it has a replica of group {group_id}"
            )
        return directory

    async def start(self) -> None:
        """Follow the metadata from now on."""
        await self._folders.make()
        self._metadata.subscribe(self._image_changed)
        self._changed.set()
        for duty in (
            self._follow,
            self._remove_leftovers_when_sure,
            self._ask_for_permits,
            self.trash.run,
        ):
            self._begin(duty)

    async def stop(self) -> None:
        """Stop following the metadata; the host closes the groups of the replicas."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def hear(self) -> None:
        """Return once the replicas here match metadata that has all changes before this call, or after
        ``HEAR_MS``.

        Calls that wait at the same time share one question to the controller.
        """
        begun = self._hearings
        with suppress(RaftlogError, TimeoutError):
            async with asyncio.timeout(HEAR_MS / 1000), self._hearing:
                if self._hearings > begun:
                    return  # another call has asked in the meantime
                self._hearings += 1
                image = await self._metadata.current_image(HEAR_MS)
                while self._seen_version < image.version:
                    self._settled.clear()
                    await self._settled.wait()

    async def settled(self) -> None:
        """Return once the hosted replicas match the newest metadata on this broker."""
        while (
            self._changed.is_set()
            or self._is_following
            or self._seen is not self._metadata.image.topics
            or self._supervisor.is_opening
        ):
            self._settled.clear()
            await self._settled.wait()

    # Following the metadata.

    def _image_changed(self, image: MetadataImage) -> None:
        self._changed.set()

    async def _follow(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            self._is_following = True
            try:
                await self._catch_up()
                self._why_behind = ""
            except OSError as error:
                self._why_behind = str(error)
                _log.error("cannot apply the metadata to the replicas, will try again: %s", error)
                asyncio.get_running_loop().call_later(FOLLOW_AGAIN_S, self._changed.set)
            except Exception as error:
                self._why_behind = f"{type(error).__name__}: {error}"
                self._changed.set()  # the duty restarts, and repeats the pass
                raise
            self._is_following = False
            self._settled.set()

    async def _catch_up(self) -> None:
        """Host, release and delete replicas according to the current metadata."""
        image, is_sure = self._metadata.image, self._is_sure  # a confirmation may arrive during the pass
        if not self._knows_this_disk(image):
            return
        if is_sure and (image.topics is not self._seen or not self._folders.may_give_up):
            await self._folders.note(image)
        if image.topics is not self._seen:
            await self._release_gone(image)
            await self._host_missing(image)
            self._seen = image.topics
        self._seen_version = image.version
        if is_sure and not self._may_begin:
            self._may_begin = True
            self._supervisor.look_again()
        await self._delete_permitted()
        await self._empty_permitted()
        if is_sure and not self._folders.is_swept:
            await self._folders.sweep(image)
            await self._forget_gone(image)

    def _knows_this_disk(self, image: MetadataImage) -> bool:
        """Whether ``image`` has this broker registered with the id of this disk."""
        broker = image.brokers.get(self._host.node_id)
        return broker is not None and broker.disk_id == self._registry.disk_id

    async def _release_gone(self, image: MetadataImage) -> None:
        """Close replicas of deleted topics, of removed partitions, and of groups that have been replaced."""
        folders: dict[str, None] = {}
        for hosted in list(self._hosted.values()):
            topic = image.topics.get(hosted.topic.name)
            if topic is None or topic.topic_id != hosted.topic.topic_id:
                folders[self._folders.of_topic(hosted.topic)] = None
                if hosted.replica is not None:
                    hosted.replica.topic_deleted()
                await self._release(hosted)
            elif hosted.key[1] >= len(topic.partitions):
                if hosted.replica is not None:
                    hosted.replica.partition_removed()
                await self._release(hosted)
                await self._folders.give_up(self._folders.of_partition(topic, hosted.key[1]), "removed")
            elif not (partition := topic.partitions[hosted.key[1]]).continues(hosted.partition):
                await self._release(hosted)  # the opener decides about the log in the folder
            elif partition.group_id != hosted.group_id:
                await self._release(hosted)
                if self._host.node_id not in partition.all_replicas:
                    self._leave_to_deletion(HostedPartition(self._environment, topic, partition))
        for folder in folders:
            await self._folders.give_up(folder, "deleted")

    async def _host_missing(self, image: MetadataImage) -> None:
        """Host the replicas that are not hosted yet, and pass newer metadata to hosted replicas."""
        me = self._host.node_id
        for topic in image.topics.values():
            seen = self._seen.get(topic.name)
            if seen is topic:
                continue
            # Replicas of an earlier process may come from newer metadata than this process has seen.
            left = await self._folders.partitions_in(topic)
            for partition in topic.partitions:
                hosted = self._hosted.get((topic.name, partition.partition))
                wanted = me in partition.all_replicas
                if hosted is not None:
                    hosted.reconfigure(topic, partition, is_leaving=not wanted)
                    if wanted and self._supervisor.state_of(hosted.group_id) is None:
                        self._supervisor.host(hosted)
                elif wanted:
                    self._host_one(HostedPartition(self._environment, topic, partition))
                elif partition.partition in left:  # it takes part until its leader permits the deletion
                    self._host_one(HostedPartition(self._environment, topic, partition, is_leaving=True))

    def _host_one(self, hosted: HostedPartition) -> None:
        self._hosted[hosted.key] = hosted
        self._supervisor.host(hosted)

    async def _release(self, hosted: HostedPartition) -> None:
        await self._supervisor.release(hosted.group_id)
        del self._hosted[hosted.key]
        await asyncio.sleep(0)

    async def _forget_gone(self, image: MetadataImage) -> None:
        """Remove groups that the confirmed ``image`` does not have from the registry."""
        groups = {partition.group_id for topic in image.topics.values() for partition in topic.partitions}
        try:
            await self._run_blocking(lambda: self._registry.keep_only({METADATA_GROUP, *groups}))
        except OSError as error:
            _log.error("cannot remove deleted groups from the registry of replicas: %s", error)

    async def _remove_leftovers_when_sure(self) -> None:
        while not self._is_sure:
            try:
                image = await self._metadata.current_image(CONFIRM_TIMEOUT_MS)
            except RaftlogError as error:
                _log.info("folders of deleted topics stay until the metadata is confirmed: %s", error)
            else:
                self._is_sure = bool(image.bootstrap_id)  # empty before the controller's first command
            await asyncio.sleep(0 if self._is_sure else CONFIRM_AGAIN_S)
        while True:
            if not self._folders.is_swept:
                self._changed.set()
            await asyncio.sleep(SWEEP_AGAIN_S)

    # Replicas that the metadata no longer places here.

    async def _ask_for_permits(self) -> None:
        while True:
            await asyncio.sleep(ASK_AGAIN_S)
            leaving = [hosted for hosted in self._hosted.values() if hosted.is_leaving]
            for hosted in [hosted for hosted in leaving if not hosted.may_be_deleted]:
                asked = hosted.partition
                is_permitted = await self._permits.ask(TopicPartition(*hosted.key), asked)
                if is_permitted and hosted.partition is asked:  # no newer metadata since the request
                    hosted.may_be_deleted = True
                    self._changed.set()
            for hosted in [hosted for hosted in self._hosted.values() if hosted.is_former]:
                asked, target = hosted.partition, TopicPartition(*hosted.key)
                is_permitted = await self._permits.ask(target, asked, is_added_again=True)
                if is_permitted and hosted.partition is asked and hosted.is_former:
                    hosted.may_be_emptied = True
                    self._changed.set()

    async def _delete_permitted(self) -> None:
        """Delete the replicas that have a delete permit, and their entries among the broken groups."""
        for hosted in [each for each in self._hosted.values() if each.may_be_deleted]:
            if not self._folders.may_give_up:
                return
            await self._release(hosted)
            try:
                await self._run_blocking(partial(self._broken.forget, hosted.group_id))
            except OSError as error:
                _log.error("cannot delete %s yet: %s", hosted.directory, error)
                self._leave_to_deletion(hosted)
                continue
            if not await self._folders.give_up(hosted.directory, "moved-away"):
                self._leave_to_deletion(hosted)

    async def _empty_permitted(self) -> None:
        """Restart the replicas that have a permit to delete their former logs. They begin with empty logs."""
        for hosted in [each for each in self._hosted.values() if each.may_be_emptied]:
            if not self._folders.may_give_up:
                return
            await self._release(hosted)
            await self._folders.give_up(hosted.directory, "added-again")
            self._host_one(HostedPartition(self._environment, hosted.topic, hosted.partition))

    def _leave_to_deletion(self, hosted: HostedPartition) -> None:
        """Keep a closed replica whose files still exist: this broker asks for a delete permit again."""
        hosted.is_leaving, hosted.may_be_deleted = True, False
        self._hosted[hosted.key] = hosted

    # Calls of other brokers and of new groups.

    async def _serve_prepared(self, sender: NodeId, ask: rpc.Prepared) -> rpc.PreparedAnswer:
        """Answer a leader whether a replica is open here, with metadata at least as new as the leader's."""
        target, group_id = ask.place
        hosted = self._hosted.get(key_of(target))
        is_open = (
            self._seen_version >= ask.version
            and hosted is not None
            and not hosted.is_leaving
            and self._supervisor.state_of(group_id) is HostedState.SERVING
        )
        group = self._host.groups.get(group_id)
        if is_open and ask.is_added and hosted is not None and hosted.must_begin_empty:
            hosted.is_former, is_open = True, False
        reason = "" if is_open else self._why_not_open(group_id, ask.version)
        return rpc.PreparedAnswer(is_open, group is not None and group.is_rejoining, reason)

    def _why_not_open(self, group_id: GroupId, version: int) -> str:
        if self._seen_version < version:
            return self._why_behind or f"its metadata has version {self._seen_version}, older than {version}"
        return self._supervisor.reason_of(group_id) or "it is not open yet"

    def _elect_again(self, group: RaftGroup[None]) -> None:
        """Call elections of a new partition's group repeatedly: the other replicas may open after the first
        call.
        """
        if not self._young:
            self._begin(self._campaign_again)
        self._young.append(group)

    async def _campaign_again(self) -> None:
        groups, self._young = self._young, []  # groups opened in one turn of the loop
        for pause_s in CAMPAIGN_AGAIN_S:
            await asyncio.sleep(pause_s)
            groups = [group for group in groups if group.leader is None and group.stopped is None]
            for group in groups:
                group.campaign()

    def _begin(self, duty: Callable[[], Coroutine[None, None, None]]) -> None:
        task = self._host.begin_duty(duty)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
