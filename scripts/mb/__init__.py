"""Sweeps, gates and reports on the rows that meshbench writes."""
