"""Monitoring: health, metrics, the log, the service manager."""
