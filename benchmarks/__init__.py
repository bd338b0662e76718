"""Benchmarks: speed and memory next to other libraries, in one process, interleaved, checked before anything is timed.

Run from a clone of the repository by `python -m benchmarks NAME`; RESULTS.md holds the figures. The scripts busy,
check_gpu, hostile_tokens, learn, page and watch_host are started by their file.
"""
