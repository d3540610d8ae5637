"""The recogniser: its queue, its thread, and the requests made for it."""
