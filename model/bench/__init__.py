"""The engine measured: engines beside one another in one run, passes, reports."""
