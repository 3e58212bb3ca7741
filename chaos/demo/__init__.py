"""The demo: real flights through a real cluster, with kills in the middle, and checks of the result.

Decides: what is shown. Leaves to others: the brokers (``chaos.cluster``).

``round_trip`` sends the flights, kills the leader of a partition half-way, and reads everything back.
``group`` counts the flights with three consumers, of which one is killed (``consumer`` is one of these
processes). ``spark`` adds them up with Spark, whose driver is killed. ``flights`` has the data.
"""
