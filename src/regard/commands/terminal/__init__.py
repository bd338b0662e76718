"""The terminal: what commands share to read keys, end, and write where it is not UTF-8; and help and usage errors."""
