"""Copies a topic of Kafka into a topic: each record once, even over several runs that are killed.

Decides: which state a run keeps. Leaves to others: the protocol of Kafka (aiokafka), transactions
(``raftlog.client``), output (``api.cli.kafka_import``). Read ``copying`` first.

The records of a transaction and their account, which is one record of the topic ``TOPIC.kafka-import``,
become visible together. An account has the next offset of each partition in Kafka, and the offsets of each
copied record on both sides (``accounts``). A run opens the transactional id of the target, which fences the
previous run and settles its last transaction, and then reads the newest account. All accounts together
translate offsets.
"""
