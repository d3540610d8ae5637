"""The port: TCP, TLS, HTTP, static files, tokens and origins."""
