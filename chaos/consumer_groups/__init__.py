"""Runs many consumer group members under faults, and checks what they saw.

Decides: what members record, and which histories violate the guarantees of consumer groups. Leaves to others:
faults of brokers, the load, and when the members end (``tests/end_to_end/test_group_faults.py``).

Members run in a few processes, each with several members of three kinds (``members``): the protocol over
plain HTTP, the poll request, and the Python client. Each process appends the events that it sees to its own
file (``history``), so that a kill loses no event. ``crowd`` starts, kills and pauses processes; ``checkers``
checks all files together.
"""
