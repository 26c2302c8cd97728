"""Experience storage: a ring of rows, how to pick from it, what to return."""
