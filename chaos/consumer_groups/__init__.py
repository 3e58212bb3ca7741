"""A crowd of consumer group members under faults, and a checker for what they saw.

Decides: what members record, and which histories violate the guarantees of consumer groups. Leaves to others:
faults of brokers, the load, when the crowd ends (``tests/end_to_end/test_group_faults.py``).

Members live in a few processes, each with several members of three kinds (``members``): the protocol over
plain HTTP, the poll request, and the Python client. Each process appends what it sees to a file of its own
(``history``), so that a kill loses nothing. ``crowd`` starts, kills and pauses processes; ``checkers`` judges
all files together.
"""
