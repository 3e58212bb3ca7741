"""Simulates the coordinator of one consumer group alone, without brokers, disks or an event loop.

Members pause, repeat requests, crash and leave. Requests arrive late or twice, and answers are lost. Another
coordinator may take over at any moment, while the deposed one continues for a while. Decides: these faults,
and the checks. Leaves to others: the tested code, ``groups.coordination``, and the other levels.

Read ``life`` first, then ``member`` and ``checker``.
"""
