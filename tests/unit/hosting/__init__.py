"""The states and effects of hosted replicas."""
