"""The target: Whisper's network over static caches, its features, tokens and alignment. Knows no request."""
