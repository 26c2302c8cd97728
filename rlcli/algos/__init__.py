"""How to learn: losses, optimizer, replay."""
