"""What operators see: health, metrics, the log, the service manager."""
