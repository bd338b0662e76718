"""The learner's layer beside the formula: how it is built and called, and which mistakes explain its output."""
