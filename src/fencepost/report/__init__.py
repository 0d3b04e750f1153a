"""A run as a page: a lane for each worker, segments by epoch, takeovers and refused writes."""

from fencepost.report.lanes import Outside, read
from fencepost.report.page import Section, render

__all__ = ["Outside", "Section", "read", "render"]
