"""Programs and a library for clients: of captiond they import `streaming.protocol` and `streaming.subtitles`."""
