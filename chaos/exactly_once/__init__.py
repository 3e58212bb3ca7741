"""Copies a topic under faults: each input must have exactly one output, whichever process is killed.

Processes read the topic ``raw`` as a consumer group. For each small batch they write, in one transaction, the
group's offsets and one record per input, to one of three topics. Brokers and copying processes are killed
during the run. Each output names its input and its transaction. So the outputs alone show which inputs were
lost or duplicated, and which transactions were torn (``judge``). Independent code reads the outputs
(``outputs``).

Read ``copies`` first: it defines the copied data. ``run`` has the faults and the figures.
"""
