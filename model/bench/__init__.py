"""Benchmarks of the engine: paired runs beside other engines, times of passes, reports."""
