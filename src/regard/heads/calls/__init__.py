"""One attention call of somebody's model, and how it is known."""
