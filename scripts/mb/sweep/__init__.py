"""Sweeps: cases from axes, each with an identity and a rule that may refuse it."""
