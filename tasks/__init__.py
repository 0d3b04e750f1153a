"""The release factory's steps, each beside its compensation."""
