"""Single environments and VectorEnv. Imports no torch."""
