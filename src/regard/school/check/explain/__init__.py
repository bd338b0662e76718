"""What is wrong, in the learner's terms: the line, the first step that differs, an example."""
