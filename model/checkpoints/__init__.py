"""From a model's name to its weights."""
