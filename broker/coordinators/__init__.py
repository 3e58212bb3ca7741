"""The coordinators of one broker: their internal topics, and how they read and write partitions.

Decides: which derived state each partition of an internal topic has, and how a coordinator uses other
partitions. Leaves to others: decisions (``groups``, ``transactions``, ``delayed``).
"""
