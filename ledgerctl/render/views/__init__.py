"""What each result looks like: one small function a result type, one file a noun."""
