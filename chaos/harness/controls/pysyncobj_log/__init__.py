"""A log on pysyncobj, which loses acknowledged writes: docs/decisions/0018-pysyncobj-is-a-control.md."""
