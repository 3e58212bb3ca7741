"""Pipelines to copy: each module is a whole one, and reads the flights of ``make demo``.

``carrier_delays`` aggregates in windows of event time, ``aircraft_days`` keeps sessions as state,
``carrier_totals`` keeps totals, ``daily_archive`` is a job for cron. Each runs by ``python -m``, with
``--help``. No module of the project imports them but tests.
"""
