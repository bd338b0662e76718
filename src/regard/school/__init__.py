"""The school: checking a layer, exercises, the course and grading."""
