"""Where the facts are kept: implementations of the ports."""
