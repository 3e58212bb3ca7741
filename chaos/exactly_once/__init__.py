"""Copies of a topic under faults: every input has one output, whatever is killed.

Processes read the topic ``raw`` as a consumer group. For each small batch they write one record to one of
three topics per input, and the group's offsets, in one transaction. Brokers and copying processes are killed
meanwhile. Each output names its input and its transaction, so the outputs alone show what was lost, doubled
or torn (``judge``). They are read by code that is not ours (``outputs``).

Start reading with ``copies``: what is copied. ``run`` has the faults and the figures.
"""
