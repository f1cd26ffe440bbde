"""One module a figure; each draws a matplotlib Figure from rows and knows nothing of files."""
