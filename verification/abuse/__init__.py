"""Sends hostile and invalid input to the open ports of real brokers.

``suite`` runs the attacks one after the other and checks that the brokers' event loops, memory and logs, and
a bystander's requests, stay within their limits. ``on_requests``, ``on_connections``, ``on_state`` and
``bad_inputs`` are the attacks, ``extremes`` derives requests from the contract, ``raw_inputs`` has input that
no contract describes, ``target`` has the common tools of attacks, ``bystander`` is a correct client in a
separate process. ``python -m verification.abuse`` runs some attacks, or the random requests that a seed
determines.
"""
