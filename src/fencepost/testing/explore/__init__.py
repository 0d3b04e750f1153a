"""Schedule exploration: every interleaving of a small fleet, and random ones of a larger one."""
