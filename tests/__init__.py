"""The tests: rings by what they promise; helpers are their shared vocabulary."""
