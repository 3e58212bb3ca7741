"""Pipelines to copy: each module is a whole pipeline, which reads the flights of ``make demo``.

``carrier_delays`` aggregates in windows of event time, ``aircraft_days`` keeps sessions as state,
``carrier_totals`` keeps totals, ``daily_archive`` is a job for cron. Run each with ``python -m``; ``--help``
shows the options. Only tests import these modules.
"""
