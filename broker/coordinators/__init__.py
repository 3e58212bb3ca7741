"""Connects the coordinators of one broker with their internal topics and with partitions.

Decides: which derived state each partition of an internal topic has, and how a coordinator uses other
partitions. Leaves to others: decisions (``groups``, ``transactions``, ``delayed``).
"""
