"""An agent that refunds customers, killed and frozen at the worst moments; see README.md."""
