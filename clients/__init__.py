"""Programs and a library that talk to the daemon. Of captiond they import `streaming.protocol` only."""
