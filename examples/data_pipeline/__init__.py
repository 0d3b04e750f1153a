"""A day's files from several sources, into a warehouse; see docs/tutorials/data-pipeline.md."""
