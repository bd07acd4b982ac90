"""The command line: parse, call, emit. One file a noun."""
