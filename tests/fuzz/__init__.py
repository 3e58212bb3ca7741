"""Coverage-guided fuzzing of all that reads foreign bytes: ``make fuzz TARGET=batches SECONDS=600``."""
