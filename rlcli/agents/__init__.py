"""How to act: model and exploration to actions."""
