"""Private servers and the demo story."""
