"""The pure core: no clock, no input or output, no driver types."""
