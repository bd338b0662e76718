"""Traces: the steps of a layer collected into a table, and the first difference between two of them."""
