"""The same project on Fencepost."""
