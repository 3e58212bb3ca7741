"""Copies a topic of Kafka into a topic: each record once, also over several runs that are killed.

Decides: what a run remembers. Leaves to others: the protocol of Kafka (aiokafka), transactions
(``raftlog.client``), output (``api.cli.kafka_import``). Read ``copying`` first.

The records of a transaction and the account of them, which is one record of the topic ``TOPIC.kafka-import``,
become visible together. An account says where each partition of Kafka goes on, and which offset each copied
record had and has (``accounts``). A run opens the transactional id of the target, which fences the run before
and settles its last transaction, and then reads the newest account. All accounts together translate offsets.
"""
