"""The course: exercises in a folder, the learner's folder, progress, hints, and a course that checks itself.

lessons/ is our course, as data. Nothing here prints; school/drawing/lessons.py does.
"""
