"""Connects consumer groups with a broker: with the topic ``__offsets``, and with the topics that groups
consume.

Decides: what a group sees of a topic. Leaves to others: groups and offsets (``groups``), creating the topic
(``internal_topics``), serving the partitions (``partitions``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from broker.coordinators.jobs import BrokerJobs
from broker.internal_topics import CreatedTopic
from broker.ports import ArchivePort, ControllerPort, GatewayPort, NoArchive
from broker.settings import Groups, QueueSettings
from groups.coordination import SWEEP_MS
from groups.coordinator import GroupCoordinator
from groups.lag_samples import LagSamples
from groups.offsets import GroupOffsets, gathered
from groups.ports import Extent, Place
from groups.records import TOPIC
from groups.service import GroupService
from groups.unconfirmed import CheckOpen
from partitions.metadata.image import MetadataImage, TopicInfo
from partitions.metadata.service import Controller
from partitions.replica.derived import DerivedState
from partitions.routing.confirmed_topics import ConfirmedTopics
from partitions.routing.gateway import Gateway
from partitions.values import FetchRequest, Start
from queues.all_queues import QueueLimits
from raftlog.clock import TrustedClock
from raftlog.errors import CorruptBatch, OffsetOutOfRange, PartitionNotFound, RaftlogError
from raftlog.hosting.known_topics import KnownTopics
from raftlog.node.frame_limits import FRAME_LIMITS, FrameLimits
from raftlog.records.batch import Batch, split_batches
from raftlog.records.reader import iter_records
from raftlog.types import NodeId, Offset, TopicPartition

STEP_BYTES: Final = 64 << 10  # of each read that searches for a record


class BrokerGroups:
    """Runs the coordinators of the consumer groups of one broker."""

    def __init__(
        self,
        node_id: NodeId,
        settings: Groups,
        queue_settings: QueueSettings,
        controller: Controller,
        gateway: Gateway,
        clock: TrustedClock,
        check_open: CheckOpen,
        has_reserve: Callable[[], bool],
        frame_limits: FrameLimits = FRAME_LIMITS,
    ) -> None:
        """``check_open`` checks that a transaction is open; see ``GroupCoordinator`` for ``has_reserve``."""
        self._check_open = check_open
        self._has_reserve = has_reserve
        self._settings = settings
        self._queue_settings = queue_settings
        self._frame_limits = frame_limits
        self._clock = clock
        self.coordinators: dict[int, GroupCoordinator] = {}  # by partition of ``__offsets``
        self._topics = self.topics = ConsumedTopics(controller, gateway)
        self._jobs = BrokerJobs(controller, gateway, clock)
        self._offsets_topic = offsets_topic = CreatedTopic(
            TOPIC,
            "consumer groups",
            controller,
            gateway,
            partitions=settings.partitions,
        )
        self.service = GroupService(node_id, offsets_topic, self.coordinators, gateway.relay)
        self.offsets = GroupOffsets(self.service, self._topics, clock)
        self.lags = LagSamples(self._topics, clock)
        controller.subscribe(self._image_changed)

    def derive(self, target: TopicPartition) -> DerivedState | None:
        """Create the coordinator of a partition of ``__offsets`` whose replica is being opened on this
        broker.

        Returns None for partitions of other topics.
        """
        if target.topic != TOPIC:
            return None
        count = self._offsets_topic.partition_count or self._settings.partitions
        coordinator = GroupCoordinator(
            str(target),
            self._clock,
            self._topics,
            self._jobs,
            self._check_open,
            offsets_retention_ms=self._settings.offsets_retention_ms,
            queue_limits=QueueLimits(
                queue_max=self._queue_settings.open_jobs_queue_max,
                total_max=self._queue_settings.open_jobs_max,
                bytes_max=self._queue_settings.open_jobs_bytes_max // count,
            ),
            state_bytes_max=self._settings.state_bytes_max // count,
            sweep_every_ms=min(SWEEP_MS, self._settings.offsets_retention_ms),
            has_reserve=self._has_reserve,
            frame_limits=self._frame_limits,
        )
        self.coordinators[target.partition] = coordinator
        return coordinator

    def _image_changed(self, image: MetadataImage) -> None:
        if changed := self._topics.take(image):
            self.offsets.topics_changed()
            for coordinator in self.coordinators.values():
                coordinator.partitions_changed(changed)


class ConsumedTopics:
    """The topics that groups consume; implements ``groups.ports.Topics``."""

    def __init__(self, controller: ControllerPort, gateway: GatewayPort) -> None:
        self._topics = ConfirmedTopics(controller)
        self._gateway = gateway
        self.archive: ArchivePort = NoArchive()  # reads records below log starts
        self._seen: Mapping[str, TopicInfo] = {}
        self.known = KnownTopics({})
        self.take(controller.image)

    def take(self, image: MetadataImage) -> set[str]:
        """Take new metadata; return the topics that are new, deleted, created again, or have different
        partitions.
        """
        before, after = self._seen, image.topics
        if after is before:
            return set()
        self._seen = after
        changed = {
            name
            for name in before.keys() | after.keys()
            if before.get(name) is not after.get(name) and _facts(before, name) != _facts(after, name)
        }
        if changed:
            known, topics = self.known, after.values()
            known.counts = {topic.name: len(topic.partitions) for topic in topics}
            known.topic_ids = {topic.name: str(topic.topic_id) for topic in topics}
            known.beginnings = {
                (str(topic.topic_id), removed.partition): int(removed.next_offset)
                for topic in topics
                for removed in topic.removed
            }
        return changed

    def topic_id(self, topic: str) -> str | None:
        """The id of a topic; None for a topic that this broker does not know."""
        return self.known.topic_ids.get(topic)

    async def exists(self, topic: str, topic_id: str) -> bool:
        """Whether a topic exists with this id. The controller is asked before the answer is no."""
        return await self._topics.topic(topic, topic_id) is not None

    async def end(self, topic: str, partition: int) -> int:
        """Return the high watermark of a partition."""
        where = TopicPartition(topic, partition)
        offset, _ = await self._gateway.offset_at(where, Start.LATEST, committed_only=False)
        return offset

    async def extent(self, topic: str, partition: int) -> Extent:
        """Return the log start and the high watermark of a partition, from one read."""
        request = FetchRequest(position=Start.LATEST, bytes_max=1, committed_only=False)
        result = await self._gateway.fetch(TopicPartition(topic, partition), request)
        return Extent(result.log_start_offset, result.high_watermark)

    async def extents(self, places: Collection[Place]) -> dict[Place, Extent | None]:
        """Return the offsets of partitions that readers can still read; see
        ``groups.ports.Topics.extents``.
        """
        found = zip(places, await gathered(map(self._asked, places)), strict=True)
        return {place: extent for place, (is_known, extent) in found if is_known}

    async def _asked(self, place: Place) -> tuple[bool, Extent | None]:
        try:
            if await self.exists(place.topic, place.topic_id):
                return True, await self._with_archive(place)
        except PartitionNotFound:
            return True, None
        except RaftlogError:
            return False, None
        return True, None

    async def _with_archive(self, place: Place) -> Extent:
        """Return the offsets of a partition that can be read: in the log, and in the archive if no gap
        separates them.
        """
        log = await self.extent(place.topic, place.partition)
        archived_from = await self.archive.archived_from(TopicPartition(place.topic, place.partition))
        return log if archived_from is None else Extent(min(archived_from, log.start), log.end)

    async def first_record(self, topic: str, partition: int, offset: int) -> tuple[int, int | None]:
        """Find the first record at or after an offset; skips control, compacted and aborted records."""
        where, bytes_max = TopicPartition(topic, partition), 1
        while True:
            try:
                request = FetchRequest(position=Offset(offset), bytes_max=bytes_max)
                result = await self._gateway.fetch(where, request)
            except OffsetOutOfRange as error:
                if (nearest := error.nearest(offset)) <= offset:
                    raise
                offset = nearest  # retention has deleted the records since then
                continue
            for batch in split_batches(result.data):
                if (found := _first_record(batch, offset)) is not None:
                    return found
            if not result.data:
                return offset, None
            offset, bytes_max = result.next_offset, STEP_BYTES


def _facts(topics: Mapping[str, TopicInfo], name: str) -> tuple[object, ...]:
    """The properties of a topic that a group sees: id, number of partitions, removed partitions."""
    topic = topics.get(name)
    return () if topic is None else (topic.topic_id, len(topic.partitions), topic.removed)


def _first_record(batch: Batch, offset: int) -> tuple[int, int] | None:
    header = batch.header
    if header.is_control or not header.record_count:
        return None
    try:
        records = ((one.offset, one.timestamp_ms) for one in iter_records(batch, offset))
        return next(records, None)
    except CorruptBatch:  # the bytes are no records: the consumer gets the error when it reads them
        return max(offset, header.base_offset), header.max_timestamp
