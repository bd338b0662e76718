"""Pages for the server's tests: small, and made by a function that counts its runs."""

import threading
import time

from regard.show.page.payload import PageData


class Counting:
    """A `see` for create_app: no model, but its runs are counted and may take time."""

    def __init__(self, seconds=0.0, size=7):
        self.seconds = seconds
        self.size = size
        self.runs = []
        self.at_once = self.most_at_once = 0
        self.lock = threading.Lock()

    def __call__(self, model, text, *cut):
        with self.lock:
            self.runs.append((model, text, *cut))
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        time.sleep(self.seconds)
        with self.lock:
            self.at_once -= 1
        if text == "refuse":
            raise ValueError("this text cannot be read; try another\nand a second line")
        if text == "fail":
            raise RuntimeError("secret path /home/someone")
        return PageData({"reports": [{"title": text}]}, {"weights.0.0.0": b"w" * self.size})
