"""Bugs in adding partitions to a topic."""

from __future__ import annotations

from tests.helpers.planted_bugs import Mutant

MACHINE = "tests/unit/partitions/metadata/test_machine.py"
PLANS = "tests/unit/partitions/metadata/test_added_partitions.py"
REBALANCES = "tests/unit/groups/test_rebalances.py"

ADDED_PARTITIONS = (
    Mutant(
        "partitions are added twice by two administrators",
        "partitions.metadata.machine:_add_partitions",
        "if count != command.expected:",
        "if False:",
        script=MACHINE,
    ),
    Mutant(
        "a repeated addition of partitions is refused",
        "partitions.metadata.machine:_add_partitions",
        "if command.placement and count == command.expected + len(command.placement):",
        "if False:",
        script=MACHINE,
    ),
    Mutant(
        "added partitions use group ids that others get, too",
        "partitions.metadata.machine:_add_partitions",
        "image.next_group_id + len(command.placement)",
        "image.next_group_id",
        script=MACHINE,
    ),
    Mutant(
        "partitions are added at another version than the one that was meant",
        "partitions.metadata.machine:_add_partitions",
        "objection or _other_version(found, command.expected_version)",
        "objection",
        script=MACHINE,
    ),
    Mutant(
        "added partitions are placed as if nothing existed",
        "partitions.metadata.planner:_plan_partitions",
        "place(brokers, _rows(image), count, factor)",
        "place(brokers, [], count, factor)",
        script=PLANS,
    ),
    Mutant(
        "partitions are added to an internal topic",
        "partitions.metadata.planner:_plan_partitions",
        "if topic.is_internal:",
        "if False:",
        script=PLANS,
    ),
    Mutant(
        "a topic may grow without limit",
        "partitions.metadata.planner:_plan_partitions",
        " or before + count > PARTITIONS_MAX",
        "",
        script=PLANS,
    ),
    Mutant(
        "added partitions are given fewer replicas than a produce needs",
        "partitions.metadata.planner:_plan_partitions",
        "topic_config.check(topic.config, replication_factor=factor)",
        "pass",
        script=PLANS,
    ),
    Mutant(
        "a group that began at the end skips the first records of added partitions",
        "groups.commits:starts_of_added",
        "range(before.get(topic, now.get(topic, 0)), now.get(topic, 0))",
        "range(0)",
        script=REBALANCES,
    ),
    Mutant(
        "a group without members forgets how many partitions it had",
        "groups.generations:next_generation",
        "counts if members else before.partition_counts",
        "counts",
        script=REBALANCES,
    ),
    Mutant(
        "a group forgets how many partitions a topic had that nobody subscribes to for a while",
        "groups.generations:former_counts",
        "left[:FORMER_TOPICS_MAX]",
        "[]",
        script=REBALANCES,
    ),
    Mutant(
        "a group without members forgets how many partitions its former topics had",
        "groups.generations:next_generation",
        "former if members else before.former_counts",
        "former if members else {}",
        script=REBALANCES,
    ),
    Mutant(
        "a group remembers topics of which it has no offset any more",
        "groups.generations:former_counts",
        " & set(consumed) - counts.keys()",
        " - counts.keys()",
        script=REBALANCES,
    ),
    Mutant(
        "a topic that was created again begins where partitions were added to the old one",
        "groups.commits:consumed_topics",
        "topic_ids.get(topic, committed.topic_id) == committed.topic_id",
        "True",
        script=REBALANCES,
    ),
    Mutant(
        "a broker that lags denies a partition that was added",
        "api.http.routes:Call._is_known",
        " and not len(found.partitions) <= partition < PARTITIONS_MAX",
        "",
        script="tests/unit/api/test_metadata_that_lags.py",
    ),
)
