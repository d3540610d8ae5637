"""What a drafter learns from: recordings, what the target makes of them, and that on disk."""
