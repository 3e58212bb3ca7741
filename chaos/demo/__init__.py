"""Runs a demo with real flights in a real cluster, with kills during the run, and checks the result.

Decides: the contents of the demo. Leaves to others: the brokers (``chaos.cluster``).

``round_trip`` sends the flights, kills the leader of a partition half-way, and reads all flights back.
``group`` counts the flights with three consumers, one of which is killed (``consumer`` runs a consumer as a
process). ``spark`` adds the flights up with Spark, whose driver is killed. ``flights`` has the data.
"""
