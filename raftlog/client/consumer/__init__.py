"""The consumer, a member of a group: ``client.consumer("billing", ["orders"])``.

Decides: when records are handed out, acknowledged and committed, so that ``delivery`` holds. Leaves to
others: the assignment of partitions to members (brokers), reading (``raftlog.client.partition``).

Everything here runs on the client's own thread and event loop: heartbeats do not depend on the user's code.
Read ``core`` first; ``membership`` speaks the group protocol, ``fetching`` reads ahead, ``faces`` are the
blocking and the asynchronous consumer.
"""
