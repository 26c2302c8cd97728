"""rlcli: a command-line launcher of deep reinforcement learning experiments."""

__version__ = "0.1.0"
