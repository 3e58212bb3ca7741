"""Mutation testing: small changes of the production code that the tests should see.

Decides: which changes are made (``operators``), in which functions (``functions``), which tests run for each
of them (``covering``) and when a change is seen (``verdicts``). ``python -m tests.mutation`` prints the
changes that no test sees; whether one of them matters is for a person to judge.

Begin with ``operators``.
"""
