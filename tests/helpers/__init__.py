"""What tests share: fakes that pass the same conformance suites as the real things, and a vocabulary."""
