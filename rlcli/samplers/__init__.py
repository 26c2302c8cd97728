"""Who steps the environments, in which process."""
