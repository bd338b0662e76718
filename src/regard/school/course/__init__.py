"""The course: exercises in a folder, the learner's folder, progress, hints, and a course that checks itself."""
