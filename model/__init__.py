"""Utterances in, hypotheses out: Whisper and its engine. No sockets, sessions or asyncio."""
