"""Training: from text files to a model, in one process or many, resumable at any step."""
