"""Requests in, transcripts out: scheduling, rounds and phases over the target's slots."""
