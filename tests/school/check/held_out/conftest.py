"""The layers here are data for tests/checking/test_held_out.py, not tests."""

collect_ignore_glob = ["*.py"]
