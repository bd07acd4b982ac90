"""Tests against real servers that the session itself starts."""
