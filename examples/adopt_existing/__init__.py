"""A small Celery project before and after it adopts Fencepost; see README.md."""
