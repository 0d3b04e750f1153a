"""The release factory's own records: attempts, artifacts, diagnostics, locks, promotions, plans."""
