"""Deliberately wrong versions: each breaks one rule, and the rule's test must be red against it."""
