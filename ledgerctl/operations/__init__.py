"""Verbs: a request, stores and now go in; an outcome comes out."""
