"""Abuse: what strangers and mistakes do to a broker over its open ports, against real brokers.

``suite`` runs the attacks one after the other and judges the brokers: their loops, their memory, their logs,
and what a bystander was served meanwhile. ``on_requests``, ``on_connections`` and ``bad_inputs`` are the
attacks, ``target`` is what all of them have in hand, ``bystander`` an honest client in a process of its own.
"""
