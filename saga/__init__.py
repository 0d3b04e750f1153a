"""The release factory's sagas: order, fan-out, error branches."""
