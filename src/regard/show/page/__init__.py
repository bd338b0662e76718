"""The page: everything that a browser shows of a report, in one file."""
