"""The coordinator of one consumer group alone: no brokers, no disk, no event loop.

Members pause, repeat, crash and leave; requests arrive late and twice, answers are lost; the coordinator
fails over at any moment, and a deposed coordinator continues for a while. Decides: these faults, and the
checks. Leaves to others: the tested code, ``groups.coordination``, and the other levels.

Read ``life`` first, then ``member`` and ``checker``.
"""
