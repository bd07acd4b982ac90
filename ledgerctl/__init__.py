"""Operate a credits ledger: explain balances, drain dead letters, rebuild daily summaries."""

__version__ = "0.1.0"
