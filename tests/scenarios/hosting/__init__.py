"""Replicated state machines hosted on several brokers, in virtual time."""
