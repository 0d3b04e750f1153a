"""The release factory's composition root: its Celery app, its scenarios, its verifier, its CLI."""
