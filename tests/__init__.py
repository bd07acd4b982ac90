"""The tests of ledgerctl."""
