"""Verbs, configuration, and the wiring of a run."""
