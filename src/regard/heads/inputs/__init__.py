"""What a call was given: token ids, padding, positions, texts."""
