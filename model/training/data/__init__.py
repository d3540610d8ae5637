"""Training data: recordings, the target's trajectories of them, and caches of those on disk."""
