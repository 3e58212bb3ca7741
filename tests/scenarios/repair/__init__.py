"""Damaged replicas and the peers that repair them."""
