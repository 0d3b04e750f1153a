"""What the examples' demonstrations share: processes that are started, watched and lost."""
