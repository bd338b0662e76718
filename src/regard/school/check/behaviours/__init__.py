"""What values cannot show: dropout, caches, other sizes, and the block around the attention."""
