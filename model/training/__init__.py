"""Training of drafters, from audio to a drafter file. No code that serves imports it."""
