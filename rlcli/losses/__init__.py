"""Pure functions on tensors: returns, targets, policy terms. Imports torch and nothing of rlcli."""
