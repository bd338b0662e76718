"""Generation: from a prompt to a text, token by token, on a CPU and on a GPU."""
