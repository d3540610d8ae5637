"""All sockets, threads, signals, files and the wall clock; no arithmetic on samples or tokens."""
