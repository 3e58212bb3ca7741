"""The tests, by what they promise; see README.md."""
