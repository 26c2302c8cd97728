"""How many environments play an evaluation's games, so that each plays the same number."""

from __future__ import annotations


def fair_n_envs(n_envs: int, n_episodes: int) -> int:
    """How many of at most ``n_envs`` environments play ``n_episodes`` games between them.

    An environment that plays more games than another gives its first games more weight, and where short and long games
    take turns, so does an odd number of them. So, as long as more than half of the environments play: an equal and even
    number of games for each; else an equal one; else all environments play, the first of them one game more.

    Args:
        n_envs: Environments there may be, at least 1.
        n_episodes: Games, at least 1.

    Returns:
        1 .. n_envs, never more than there are games; of several the most.
    """
    most = min(n_envs, n_episodes)
    equal = [n for n in range(most, most // 2, -1) if n_episodes % n == 0]
    even = [n for n in equal if n_episodes // n % 2 == 0]
    return next(iter(even or equal), most)
