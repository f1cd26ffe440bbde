"""Compares rows of two builds and says which metrics became worse."""
