"""Programs and a library that talk to the daemon.

They import `streaming.protocol` and `streaming.subtitles`, and no other part of captiond.
"""
