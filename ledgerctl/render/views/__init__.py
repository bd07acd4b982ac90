"""Lay out each result: one small function a result type, one file a noun."""
