"""Administers topics, brokers and the cluster. The calls return the response bodies of the HTTP contract."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, get_args

import msgspec

from raftlog.client.listing import partitions_of
from raftlog.client.options import Duration, choice, milliseconds, seconds
from raftlog.errors import TopicExists
from raftlog.wire import bodies, brokers, cluster, dependents, plans, topics
from raftlog.wire.dependents import TopicDependents
from raftlog.wire.operation import Operation

if TYPE_CHECKING:
    from raftlog.client.metadata import Metadata
    from raftlog.client.session import Session
    from raftlog.wire.joining import AdmitBroker, BrokerAdmitted, IssuedJoinToken

LOOK_S = 0.2
PRESETS: Mapping[str, bodies.PresetName] = {name: name for name in get_args(bodies.PresetName)}


class AsyncTopics:
    """The topics of the cluster. Changes of topics are not retried after an unknown outcome."""

    def __init__(self, session: Session, metadata: Metadata) -> None:
        self._session = session
        self._metadata = metadata

    async def create(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int | None = None,
        retention: Duration | None = None,
        config: Mapping[str, bodies.SettingValue] | None = None,
        preset: str | None = None,
        exist_ok: bool = False,
    ) -> bodies.TopicDescription:
        """Create a topic.

        If the topic exists, raises ``TopicExists``, or with ``exist_ok`` returns the topic. With ``exist_ok``
        a request without an answer is repeated. Without ``exist_ok`` a request without an answer raises
        ``CommitUnknown`` or ``ConnectionLost``; the topic may then exist. ``retention`` is short for
        ``retention.ms`` in ``config``; ``replication_factor`` defaults to 3, or to 1 with fewer than three
        brokers. ``preset`` is ``latency`` or ``throughput``, and sets the settings that are not in
        ``config``.
        """
        wanted = dict(config or {})
        if retention is not None:
            wanted["retention.ms"] = milliseconds("retention", retention)
        body = bodies.CreateTopic(name, partitions, replication_factor, wanted, _preset(preset))
        try:
            return await self._session.call(topics.CREATE, body, may_repeat=exist_ok)
        except TopicExists:
            if not exist_ok:
                raise
            return await self.describe(name)

    async def describe(self, name: str) -> bodies.TopicDescription:
        """The description of a topic. Raises ``TopicNotFound``."""
        return await self._session.call(topics.DESCRIBE, topic=name)

    async def partitions(self, name: str) -> list[bodies.PartitionDescription]:
        """The partitions of a topic: leaders, replicas, offsets. Raises ``TopicNotFound``."""
        return await partitions_of(self._session, name)

    async def alter(
        self,
        name: str,
        *,
        config: Mapping[str, bodies.SettingValue | None] | None = None,
        preset: str | None = None,
    ) -> bodies.TopicConfig:
        """Change settings of a topic, and return all effective settings. The value ``None`` resets a setting.

        ``preset`` is ``latency`` or ``throughput``, and sets the settings that are not in ``config``.
        """
        body = bodies.ChangeTopic(dict(config or {}), _preset(preset))
        return await self._session.call(topics.ALTER, body, topic=name)

    async def add_partitions(
        self, name: str, count: int, *, expected: int | None = None
    ) -> bodies.PartitionsAdded:
        """Add ``count`` partitions to a topic that has ``expected`` partitions (default: as many as now).

        Safe to repeat: a topic that has ``expected + count`` partitions stays as it is. Raises
        ``PreconditionFailed`` if the topic has any other number of partitions. ``warnings`` of the result
        concern compacted topics.
        """
        if expected is None:
            expected = (await self.describe(name)).partitions
        body = bodies.AddPartitions(count, expected)
        added = await self._session.call(topics.ADD_PARTITIONS, body, topic=name)
        if self._metadata.cached(name) is not None:
            await self._metadata.refresh(name)
        return added

    async def decommission_partitions(
        self,
        name: str,
        partitions: Sequence[int] = (),
        *,
        count: int | None = None,
        expected: int | None = None,
    ) -> bodies.PartitionsDecommissioned:
        """Decommission the last partitions of a topic, given by their numbers or by their count.

        A decommissioned partition takes no more records. Consumers read it until retention has deleted its
        last record; then the partition is removed. Safe to repeat. ``warnings`` of the result concern
        compacted topics, and topics that keep records for ever. Raises ``InvalidRequest`` if ``partitions``
        are not the last partitions or are all partitions of the topic, ``PartitionNotFound``, and
        ``PreconditionFailed`` unless ``expected`` partitions take records (default: the present number).
        """
        if count is not None and expected is None:
            shown = await self.describe(name)
            expected = shown.partitions - len(shown.decommissioned)
        body = bodies.DecommissionPartitions(list(partitions), count, expected)
        return await self._shrink(topics.DECOMMISSION_PARTITIONS, name, body)

    async def recommission_partitions(
        self, name: str, partitions: Sequence[int] = ()
    ) -> bodies.PartitionsDecommissioned:
        """Let decommissioned partitions take records again (default: all decommissioned ones).

        Safe to repeat. Raises ``Conflict`` for a partition that has been removed.
        """
        body = bodies.RecommissionPartitions(list(partitions))
        return await self._shrink(topics.RECOMMISSION_PARTITIONS, name, body)

    async def _shrink(
        self, operation: Operation[bodies.PartitionsDecommissioned], name: str, body: bodies.Request
    ) -> bodies.PartitionsDecommissioned:
        changed = await self._session.call(operation, body, topic=name)
        if self._metadata.cached(name) is not None:
            await self._metadata.refresh(name)
        return changed

    async def dependents(self, name: str) -> TopicDependents:
        """Groups, queues, schedules and delayed messages that depend on a topic. Raises ``TopicNotFound``."""
        return await self._session.call(dependents.DEPENDENTS, topic=name)

    async def delete(self, name: str) -> None:
        """Delete a topic and all its records. Raises ``TopicNotFound``."""
        await self._session.call(topics.DELETE, topic=name)
        self._metadata.forget(name)

    async def list(self) -> list[bodies.TopicDescription]:
        """Return all topics, sorted by name."""
        return await self._session.all_items(topics.LIST)


class AsyncCluster:
    """The cluster as a whole: its state, plans of balancing, tokens to join.

    After an unknown outcome a request is not retried, and the error is raised: a repetition could undo a
    later change by another operator.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    async def describe(self) -> bodies.ClusterDescription:
        """The cluster as the responding broker knows it."""
        return await self._session.call(cluster.DESCRIBE)

    async def propose_plan(self) -> plans.PlanDescription:
        """Compute the moves of replicas that balance the brokers. No replica moves yet.

        Raises ``Conflict`` while a broker in use is missing or draining.
        """
        return await self._session.call(plans.START, query={"dry_run": "true"}, may_repeat=True)

    async def start_plan(self, plan: plans.PlanDescription | None = None) -> plans.PlanDescription:
        """Carry out ``plan``, a result of ``propose_plan``; without ``plan`` compute a plan and carry it out.

        Raises ``PreconditionFailed`` if a partition of the plan has changed since the proposal, and
        ``Conflict`` while another plan is carried out. After an unknown outcome the request is not retried:
        the method ``plan`` shows whether the plan has begun.
        """
        body = (
            plans.StartPlan() if plan is None else msgspec.convert(msgspec.to_builtins(plan), plans.StartPlan)
        )
        return await self._session.call(plans.START, body)

    async def plan(self) -> plans.PlanDescription:
        """The plan in progress; if there is none, the field ``plan`` of the result is ``None``."""
        return await self._session.call(plans.DESCRIBE)

    async def cancel_plan(self) -> plans.PlanDescription:
        """Cancel the plan: moves that have begun continue. Raises ``Conflict`` if no plan is in progress."""
        return await self._session.call(plans.CANCEL)

    async def join_token(self) -> IssuedJoinToken:
        """Issue a token for ``raftlog cluster join``. A broker with the token can join within an hour."""
        from raftlog.wire import joining  # with OpenSSL, which takes 10 ms to load

        return await self._session.call(joining.JOIN_TOKEN)

    async def controller(self) -> bodies.ControllerDescription:
        """The active controller, and the replicas that brokers refuse to open. Raises ``NoLeader``."""
        return await self._session.call(cluster.CONTROLLER)


class AsyncBrokers:
    """The brokers of the cluster.

    After an unknown outcome a request is not retried, and the error is raised: a repetition could undo a
    later change by another operator.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    async def describe(self, broker: int) -> bodies.BrokerDescription:
        """Return one broker, with the number of its replicas. Raises ``BrokerNotFound``."""
        return await self._session.call(brokers.DESCRIBE, broker=broker)

    async def drain(self, broker: int) -> bodies.BrokerDescription:
        """Place no new replicas on a broker, and move its leaderships to other brokers. Its replicas stay."""
        return await self._session.call(brokers.DRAIN, broker=broker)

    async def decommission(self, broker: int, *, wait: Duration | None = None) -> bodies.BrokerDescription:
        """Move all replicas of a broker, and its vote on metadata, to other brokers.

        With ``wait`` the call returns once the replicas and the vote are moved, or at the latest after the
        time ``wait``; ``replicas`` and ``metadata_voter`` of the result show whether they are moved.

        Raises ``Conflict`` if the other brokers cannot hold the replicas.
        """
        wait_s = 0.0 if wait is None else seconds("wait", wait)
        deadline = self._session.clock.monotonic() + wait_s
        shown = await self._session.call(brokers.DECOMMISSION, broker=broker)
        while (shown.replicas or shown.metadata_voter) and self._session.clock.monotonic() < deadline:
            import asyncio  # only this call waits

            await asyncio.sleep(LOOK_S)
            shown = await self.describe(broker)
        return shown

    async def recommission(self, broker: int) -> bodies.BrokerDescription:
        """End draining and decommissioning. Replicas that have moved stay where they are."""
        return await self._session.call(brokers.RECOMMISSION, broker=broker)

    async def forget(self, broker: int) -> bodies.BrokerForgotten:
        """Remove a stopped broker, which is decommissioned or dead. No other broker gets its id.

        Safe to repeat. Raises ``Conflict`` while the broker is alive, has replicas or votes on metadata.
        Raises ``BrokerNotFound`` for an unknown id.
        """
        return await self._session.call(brokers.FORGET, broker=broker)

    async def admit(self, request: AdmitBroker) -> BrokerAdmitted:
        """Let a broker join. A repeated request returns the broker that joined by the first request.

        Complete ``request`` with ``raftlog.wire.joining.with_proof`` first. Raises ``JoinRefused``,
        ``Conflict``.
        """
        from raftlog.wire import joining

        return await self._session.call(joining.ADMIT, request)

    async def list(self) -> list[bodies.BrokerDescription]:
        """Return all registered brokers, sorted by id."""
        return await self._session.all_items(brokers.LIST)


def _preset(name: str | None) -> bodies.PresetName | None:
    return None if name is None else choice("preset", name, PRESETS)
