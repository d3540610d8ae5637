"""Generated speech for training."""
