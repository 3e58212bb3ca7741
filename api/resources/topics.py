"""Creates, reads, changes and deletes topics, their configuration and their partitions.

The ``ETag`` of a topic is the metadata version of its last change; ``If-Match`` makes a change conditional on
this version. Leaves to others: whether a topic may be created and where its replicas are placed.
"""

from __future__ import annotations

import asyncio
import re
from typing import Final

from aiohttp import web

from api.http import pagination, parameters
from api.http.bodies import read_json
from api.http.routes import (
    IF_MATCH,
    LIMIT,
    PAGE_TOKEN,
    PARTITION,
    TOPIC,
    Call,
    Route,
    json_response,
)
from api.resources import partition_bodies
from partitions.metadata.image import TopicInfo
from partitions.metadata.topic_config import as_json, compacts, deletes, with_preset
from raftlog.errors import InvalidRequest, RaftlogError
from raftlog.wire import bodies, partitions, topics
from raftlog.wire.limits import NAME_CHARACTERS_MAX, NAME_PATTERN

_NAME = re.compile(NAME_PATTERN)
SEAL_S: Final = 3.0  # longest wait of a decommission for the leaders
LOOK_S: Final = 0.05
_KEPT = (
    "topic {topic} keeps its records forever ({why}), so these partitions remain until their records are "
    "deleted: change the setting, or delete the records once they are consumed (:delete-before)"
)
_COMPACTED = (
    "topic {topic} is compacted, and most keys go to another partition from now on: the newest record of "
    "such a key remains in its former partition until a tombstone for the key is written to that partition"
)


async def list_topics(call: Call) -> web.StreamResponse:
    """List all topics that this broker knows."""
    topics = sorted((await call.metadata()).topics.items())
    shown, token = pagination.page(topics, call.query, pagination.NAMES)
    return json_response(bodies.TopicList([_body(call, topic) for topic in shown], token))


async def create_topic(call: Call) -> web.StreamResponse:
    """Create a topic."""
    wanted = await read_json(call, bodies.CreateTopic)
    if not _NAME.fullmatch(wanted.name) or wanted.name in (".", ".."):
        raise InvalidRequest(
            f"name is {wanted.name[:64]!r}; send 1 to {NAME_CHARACTERS_MAX} of A-Z a-z 0-9 . _ - "
            "(and not . or ..)",
            field="name",
        )
    services = call.services
    config = with_preset(wanted.preset, wanted.config)
    topic = await services.controller.create_topic(
        wanted.name,
        partitions=wanted.partitions,
        replication_factor=wanted.replication_factor,
        config={name: value for name, value in config.items() if value is not None},
        timeout_ms=services.limits.control_timeout_ms,
    )
    await _until_known_here(call, topic.version)
    return json_response(
        _body(call, topic),
        201,
        {"Location": topics.DESCRIBE.at(topic=topic.name), "ETag": parameters.etag(topic.version)},
    )


async def get_topic(call: Call) -> web.StreamResponse:
    """Describe one topic."""
    topic = call.topic()
    return json_response(_body(call, topic), headers={"ETag": parameters.etag(topic.version)})


async def add_partitions(call: Call) -> web.StreamResponse:
    """Add partitions; existing partitions keep their records."""
    wanted = await read_json(call, bodies.AddPartitions)
    topic = await call.services.controller.add_partitions(
        call.topic().name,
        wanted.count,
        expected=wanted.expected,
        expected_version=parameters.if_match(call.request),
        timeout_ms=call.services.limits.control_timeout_ms,
    )
    await _until_known_here(call, topic.version)
    shown = _body(call, topic)
    fields = {name: getattr(shown, name) for name in shown.__struct_fields__}
    warnings = [_COMPACTED.format(topic=topic.name)] if compacts(shown.config) else []
    return json_response(
        bodies.PartitionsAdded(**fields, warnings=warnings), headers={"ETag": parameters.etag(topic.version)}
    )


async def decommission_partitions(call: Call) -> web.StreamResponse:
    """Decommission the last partitions; the response comes once their leaders refuse records, or after
    ``SEAL_S``.
    """
    wanted = await read_json(call, bodies.DecommissionPartitions)
    if bool(wanted.partitions) == (wanted.count is not None):
        raise InvalidRequest(
            "send partitions, the numbers of the last partitions, or count, their number; one of the two",
            field="partitions",
        )
    topic = await call.services.controller.decommission_partitions(
        call.topic().name,
        partitions=wanted.partitions,
        count=wanted.count or 0,
        expected=wanted.expected,
        expected_version=parameters.if_match(call.request),
        timeout_ms=call.services.limits.control_timeout_ms,
    )
    await _until_known_here(call, topic.version)
    await _until_sealed(call, topic)
    return _decommissioned(call, topic, 202)


async def recommission_partitions(call: Call) -> web.StreamResponse:
    """Recommission partitions: they accept records again."""
    wanted = await read_json(call, bodies.RecommissionPartitions)
    topic = await call.services.controller.decommission_partitions(
        call.topic().name,
        partitions=wanted.partitions,
        is_ended=True,
        expected_version=parameters.if_match(call.request),
        timeout_ms=call.services.limits.control_timeout_ms,
    )
    await _until_known_here(call, topic.version)
    return _decommissioned(call, topic, 200)


def _decommissioned(call: Call, topic: TopicInfo, status: int) -> web.Response:
    shown = _body(call, topic)
    fields = {name: getattr(shown, name) for name in shown.__struct_fields__}
    body = bodies.PartitionsDecommissioned(**fields, warnings=_warnings(shown))
    return json_response(body, status, {"ETag": parameters.etag(topic.version)})


def _warnings(shown: bodies.TopicDescription) -> list[str]:
    config, name = shown.config, shown.name
    if not shown.decommissioned:
        return []
    found = [_COMPACTED.format(topic=name)] if compacts(config) else []
    if not deletes(config):
        found.append(_KEPT.format(topic=name, why="cleanup.policy is compact"))
    elif config["retention.ms"] == -1:
        found.append(_KEPT.format(topic=name, why="retention.ms is -1"))
    return found


async def _until_sealed(call: Call, topic: TopicInfo) -> None:
    """Wait until the leaders have sealed the decommissioned partitions, at most ``SEAL_S``.

    A leader that cannot be reached now seals its partition later. Before that, only brokers with old metadata
    send records to the partition.
    """
    loop = asyncio.get_running_loop()
    deadline, decommissioned = loop.time() + SEAL_S, range(topic.writable_partitions, len(topic.partitions))
    while loop.time() < deadline:
        try:
            statuses = await call.services.gateway.describe(topic.name, decommissioned)
        except RaftlogError:
            return  # the topic was deleted during the request
        if all(each.is_sealed for each in statuses):
            return
        await asyncio.sleep(LOOK_S)


async def delete_topic(call: Call) -> web.StreamResponse:
    """Delete a topic and its records."""
    topic = call.topic()
    version = await call.services.controller.delete_topic(
        topic.name,
        expected_version=parameters.if_match(call.request),
        timeout_ms=call.services.limits.control_timeout_ms,
    )
    await _until_known_here(call, version)
    return json_response(bodies.TopicDeleted(topic.name, version))


async def get_config(call: Call) -> web.StreamResponse:
    """Return the effective configuration of a topic, and the settings that users have set."""
    return _config_answer(call, call.topic())


async def change_config(call: Call) -> web.StreamResponse:
    """Change the configuration of a topic, and return the new configuration."""
    topic = call.topic()
    wanted = await read_json(call, bodies.ChangeTopic)
    changed = await call.services.controller.alter_config(
        topic.name,
        with_preset(wanted.preset, wanted.config),
        expected_version=parameters.if_match(call.request),
        timeout_ms=call.services.limits.control_timeout_ms,
    )
    await _until_known_here(call, changed.version)
    return _config_answer(call, changed)


async def list_partitions(call: Call) -> web.StreamResponse:
    """Return the partitions of a topic as their leaders describe them. Asks only the leaders of partitions on
    the page.
    """
    topic = call.topic()
    keyed = [(pagination.number_key(info.partition), info) for info in topic.partitions]
    shown, token = pagination.page(keyed, call.query, pagination.NUMBERS)
    infos = {info.partition: info for info in shown}
    statuses = await call.services.gateway.describe(topic.name, infos.keys())
    statuses.sort(key=lambda status: status.partition)
    shown_bodies = [partition_bodies.body(status, infos[status.partition]) for status in statuses]
    return json_response(bodies.PartitionList(shown_bodies, token))


async def get_partition(call: Call) -> web.StreamResponse:
    """Describe one partition."""
    _, target = call.partition()
    return json_response(await partition_bodies.described(call, target))


async def _until_known_here(call: Call, version: int) -> None:
    """Wait until this broker's metadata have the change, so that the client reads its own write.

    A timeout is no error, because the change is committed.
    """
    try:
        await call.services.controller.wait_for_version(version, call.services.limits.control_timeout_ms)
    except (RaftlogError, TimeoutError):
        return


def _config_answer(call: Call, topic: TopicInfo) -> web.Response:
    body = bodies.TopicConfig(call.services.settings_of(topic), as_json(topic.config), topic.version)
    return json_response(body, headers={"ETag": parameters.etag(topic.version)})


def _body(call: Call, topic: TopicInfo) -> bodies.TopicDescription:
    return bodies.TopicDescription(
        topic.name,
        topic.topic_id,
        len(topic.partitions),
        topic.replication_factor,
        topic.is_internal,
        call.services.settings_of(topic),
        topic.version,
        [*range(topic.writable_partitions, len(topic.partitions))],
        [bodies.RemovedPartition(one.partition, one.records_end, one.next_offset) for one in topic.removed],
    )


ROUTES = (
    Route(topics.LIST, list_topics, (LIMIT, PAGE_TOKEN)),
    Route(topics.CREATE, create_topic),
    Route(topics.DESCRIBE, get_topic, (TOPIC,)),
    Route(topics.DELETE, delete_topic, (TOPIC, IF_MATCH)),
    Route(topics.CONFIG, get_config, (TOPIC,)),
    Route(topics.ALTER, change_config, (TOPIC, IF_MATCH)),
    Route(partitions.LIST, list_partitions, (TOPIC, LIMIT, PAGE_TOKEN)),
    Route(topics.ADD_PARTITIONS, add_partitions, (TOPIC, IF_MATCH)),
    Route(topics.DECOMMISSION_PARTITIONS, decommission_partitions, (TOPIC, IF_MATCH)),
    Route(topics.RECOMMISSION_PARTITIONS, recommission_partitions, (TOPIC, IF_MATCH)),
    Route(partitions.DESCRIBE, get_partition, (TOPIC, PARTITION)),
)
