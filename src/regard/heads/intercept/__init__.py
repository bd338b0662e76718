"""How attention calls are noticed: one file for each way to call attention."""
