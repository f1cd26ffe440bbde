"""One page of HTML on many rows: verdict, tables, figures, timelines."""
