"""The paths of the contract. The templates are the server's routes; the functions fill them for clients."""

from __future__ import annotations

from urllib.parse import quote

TOPICS = "/v1/topics"
TOPIC = "/v1/topics/{topic}"
TOPIC_CONFIG = "/v1/topics/{topic}/config"
TOPIC_RECORDS = "/v1/topics/{topic}/records"
TOPIC_DEPENDENTS = "/v1/topics/{topic}/dependents"
DELETE_BEFORE = "/v1/topics/{topic}/records:delete-before"
ARCHIVED_UP_TO = "/v1/topics/{topic}/records:archived-up-to"
PARTITIONS = "/v1/topics/{topic}/partitions"
ADD_PARTITIONS = "/v1/topics/{topic}/partitions:add"
DECOMMISSION_PARTITIONS = "/v1/topics/{topic}/partitions:decommission"
RECOMMISSION_PARTITIONS = "/v1/topics/{topic}/partitions:recommission"
PARTITION = "/v1/topics/{topic}/partitions/{partition}"
PARTITION_RECORDS = "/v1/topics/{topic}/partitions/{partition}/records"
PARTITION_OFFSETS = "/v1/topics/{topic}/partitions/{partition}/offsets"
TRANSFER_LEADERSHIP = "/v1/topics/{topic}/partitions/{partition}:transfer-leadership"
ADD_REPLICA = "/v1/topics/{topic}/partitions/{partition}:add-replica"
REMOVE_REPLICA = "/v1/topics/{topic}/partitions/{partition}:remove-replica"
SET_REPLICAS = "/v1/topics/{topic}/partitions/{partition}:set-replicas"
UNSAFE_RECOVER = "/v1/partitions/{topic}/{partition}:unsafe-recover"
MESSAGE = "/v1/topics/{topic}/messages/{partition}/{offset}"
DEAD_LETTERS = "/v1/topics/{topic}/dlq/{group}"
DEAD_LETTERS_REDRIVE = "/v1/topics/{topic}/dlq/{group}:redrive"
DEAD_LETTERS_DISCARD = "/v1/topics/{topic}/dlq/{group}:discard"
GROUPS = "/v1/groups"
GROUP = "/v1/groups/{group}"
GROUP_COORDINATOR = "/v1/groups/{group}/coordinator"
GROUP_REBALANCES = "/v1/groups/{group}/rebalances"
GROUP_OFFSETS = "/v1/groups/{group}/offsets"
GROUP_OFFSETS_RESET = "/v1/groups/{group}/offsets:reset"
GROUP_OFFSETS_DELETE = "/v1/groups/{group}/offsets:delete"
GROUP_MEMBERS = "/v1/groups/{group}/members"
GROUP_MEMBER = "/v1/groups/{group}/members/{member}"
GROUP_SYNC = "/v1/groups/{group}/members/{member}:sync"
GROUP_HEARTBEAT = "/v1/groups/{group}/members/{member}:heartbeat"
GROUP_POLL = "/v1/groups/{group}/members/{member}:poll"
QUEUE = "/v1/queues/{topic}/{group}"
QUEUE_RECEIVE = "/v1/queues/{topic}/{group}:receive"
QUEUE_ACK = "/v1/queues/{topic}/{group}:ack"
QUEUE_NACK = "/v1/queues/{topic}/{group}:nack"
QUEUE_EXTEND = "/v1/queues/{topic}/{group}:extend"
QUEUE_DEAD_LETTER = "/v1/queues/{topic}/{group}:dead_letter"
PRODUCERS = "/v1/producers"
DELAYED = "/v1/delayed"
DELAYED_MESSAGE = "/v1/delayed/{delayed_id}"
SCHEDULES = "/v1/schedules"
SCHEDULE = "/v1/schedules/{schedule_id}"
TRANSACTIONS = "/v1/transactions"
TRANSACTION = "/v1/transactions/{transaction}"
TRANSACTION_COMMIT = "/v1/transactions/{transaction}:commit"
TRANSACTION_ABORT = "/v1/transactions/{transaction}:abort"
TRANSACTION_ADD_OFFSETS = "/v1/transactions/{transaction}:add-offsets"
TRANSACTION_PREPARE = "/v1/transactions/{transaction}:prepare"
EXECUTE = "/v1/transactions:execute"
BEGIN_RUN = "/v1/transactions:begin-run"
COMMIT_BATCH = "/v1/transactions:commit-batch"
ABORT_BATCH = "/v1/transactions:abort-batch"
BROKERS = "/v1/brokers"
BROKER = "/v1/brokers/{broker}"
DRAIN_BROKER = "/v1/brokers/{broker}:drain"
DECOMMISSION_BROKER = "/v1/brokers/{broker}:decommission"
RECOMMISSION_BROKER = "/v1/brokers/{broker}:recommission"
FORGET_BROKER = "/v1/brokers/{broker}:forget"
CLUSTER = "/v1/cluster"
CLUSTER_CONTROLLER = "/v1/cluster/controller"
CLUSTER_PLAN = "/v1/cluster/plan"
REBALANCE = "/v1/cluster/plan:rebalance"
CANCEL_PLAN = "/v1/cluster/plan:cancel"
JOIN_TOKENS = "/v1/cluster/join-tokens"
LIVE = "/healthz/live"
READY = "/healthz/ready"
STARTUP = "/healthz/startup"
METRICS = "/metrics"
VERSION = "/version"
OPENAPI = "/openapi.json"
DOCS = "/docs"
PROBLEMS = "/problems"
PROBLEM = "/problems/{code}"
ROOT = "/"


def topic(name: str) -> str:
    """The path of a topic."""
    return TOPIC.format(topic=_quoted(name))


def topic_config(name: str) -> str:
    """The path of a topic's configuration."""
    return TOPIC_CONFIG.format(topic=_quoted(name))


def topic_records(name: str) -> str:
    """The path to produce to a topic; the broker chooses the partitions."""
    return TOPIC_RECORDS.format(topic=_quoted(name))


def topic_dependents(name: str) -> str:
    """The path of what depends on a topic."""
    return TOPIC_DEPENDENTS.format(topic=_quoted(name))


def delete_before(name: str) -> str:
    """The path to delete the oldest records of a partition."""
    return DELETE_BEFORE.format(topic=_quoted(name))


def archived_up_to(name: str) -> str:
    """The path to set up to which offset a partition is archived."""
    return ARCHIVED_UP_TO.format(topic=_quoted(name))


def partitions(name: str) -> str:
    """The path of all partitions of a topic."""
    return PARTITIONS.format(topic=_quoted(name))


def add_partitions(name: str) -> str:
    """The path to add partitions to a topic."""
    return ADD_PARTITIONS.format(topic=_quoted(name))


def decommission_partitions(name: str) -> str:
    """The path that decommissions partitions of a topic."""
    return DECOMMISSION_PARTITIONS.format(topic=_quoted(name))


def recommission_partitions(name: str) -> str:
    """The path that ends the decommissioning of partitions of a topic."""
    return RECOMMISSION_PARTITIONS.format(topic=_quoted(name))


def partition(name: str, number: int) -> str:
    """The path of one partition."""
    return PARTITION.format(topic=_quoted(name), partition=number)


def of_partition(template: str, name: str, number: int) -> str:
    """The path of an operation on one partition, such as ``SET_REPLICAS``."""
    return template.format(topic=_quoted(name), partition=number)


def partition_records(name: str, number: int) -> str:
    """The path to produce to and fetch from one partition."""
    return PARTITION_RECORDS.format(topic=_quoted(name), partition=number)


def partition_offsets(name: str, number: int) -> str:
    """The path to find an offset."""
    return PARTITION_OFFSETS.format(topic=_quoted(name), partition=number)


def message(name: str, number: int, offset: int) -> str:
    """The permalink of one message."""
    return MESSAGE.format(topic=_quoted(name), partition=number, offset=offset)


def of_dead_letters(template: str, topic_name: str, group: str) -> str:
    """The path of a group's dead letters, such as ``DEAD_LETTERS_REDRIVE``."""
    return template.format(topic=_quoted(topic_name), group=_quoted(group))


def of_queue(template: str, topic_name: str, group: str) -> str:
    """The path of a queue, or of something of it, such as ``QUEUE_ACK``."""
    return template.format(topic=_quoted(topic_name), group=_quoted(group))


def of_group(template: str, group: str) -> str:
    """The path of something of one group, such as ``GROUP_OFFSETS``."""
    return template.format(group=_quoted(group))


def of_member(template: str, group: str, member: str) -> str:
    """The path of one member, such as ``GROUP_SYNC``."""
    return template.format(group=_quoted(group), member=_quoted(member))


def of_transaction(template: str, transaction: str) -> str:
    """The path of something of one transaction, such as ``TRANSACTION_COMMIT``."""
    return template.format(transaction=_quoted(transaction, safe="@"))


def of_delayed(delayed_id: str) -> str:
    """The path of one delayed message."""
    return DELAYED_MESSAGE.format(delayed_id=_quoted(delayed_id))


def of_schedule(schedule_id: str) -> str:
    """The path of one schedule."""
    return SCHEDULE.format(schedule_id=_quoted(schedule_id))


def broker(number: int) -> str:
    """The path of one broker."""
    return BROKER.format(broker=number)


def problem(code: str) -> str:
    """The page of one kind of error: the path of its ``type``."""
    return PROBLEM.format(code=code.replace("_", "-"))


def of_broker(template: str, broker: int) -> str:
    """The path of one broker, or of an operation on it, such as ``DRAIN_BROKER``."""
    return template.format(broker=broker)


def _quoted(name: str, safe: str = "") -> str:
    """Also of a name that UTF-8 cannot encode, which no server knows: it says so."""
    return quote(name, safe=safe, errors="surrogatepass")
