"""The learner's code: loading it, running it here or in a sandbox, and what it reports."""
