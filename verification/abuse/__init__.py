"""Abuse: hostile and invalid input on the open ports of real brokers.

``suite`` runs the attacks one after the other and checks the brokers: event loops, memory, logs,
and the service of a bystander. ``on_requests``, ``on_connections``, ``on_state`` and ``bad_inputs`` are the
attacks, ``extremes`` derives requests from the contract, ``raw_inputs`` has what no contract describes,
``target`` has their common tools, ``bystander`` is a correct client in a process of its own.
``python -m verification.abuse`` runs some of them, or a seed.
"""
