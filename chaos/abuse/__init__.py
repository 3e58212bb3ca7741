"""Abuse: hostile and invalid input on the open ports of real brokers.

``suite`` runs the attacks one after the other and checks the brokers: event loops, memory, logs,
and the service of a bystander. ``on_requests``, ``on_connections`` and ``bad_inputs`` are the
attacks, ``target`` has their common tools, ``bystander`` is a correct client in a process of its own.
"""
