"""The project as it was."""
