"""Describes the groups, queues, schedules and delayed messages that depend on a topic, before the topic is
deleted.

This module decides nothing: the owners (``groups``, ``delayed``) decide what happens to these objects when
the topic is deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final

from aiohttp import web

from api.http.routes import TOPIC, Call, Route, json_response
from groups.requests import TopicGroup
from raftlog.records.failures import dead_letter_topic
from raftlog.wire import dependents
from raftlog.wire.dependents import DependentGroup, TopicDependents

GROUPS_MAX: Final = 1_000  # groups in one response


async def get_dependents(call: Call) -> web.StreamResponse:
    """Return the names of the groups and queues, and the numbers of schedules and delayed messages, that
    depend on a topic.
    """
    topic, services = call.topic(), call.services
    (group_count, groups), counted = await asyncio.gather(
        services.groups.of_topic(topic.name, str(topic.topic_id), GROUPS_MAX),
        services.delayed.count(topic.name, str(topic.topic_id), services.limits.control_timeout_ms),
    )
    topics = (await call.metadata()).topics
    body = TopicDependents(
        topic.name,
        [_group(topic.name, each, topics) for each in groups],
        group_count,
        counted.schedules,
        counted.pending,
        counted.failed,
    )
    return json_response(body)


def _group(topic: str, found: TopicGroup, topics: Collection[str]) -> DependentGroup:
    letters = dead_letter_topic(topic, found.group)
    return DependentGroup(
        found.group,
        found.members,
        found.partitions,
        found.is_queue,
        found.open_jobs,
        letters if letters in topics else None,
    )


ROUTES = (Route(dependents.DEPENDENTS, get_dependents, (TOPIC,)),)
