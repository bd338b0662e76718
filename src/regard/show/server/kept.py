"""Reports that the server keeps: the last used, up to so many bytes."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from regard.show.page.payload import PageData


@dataclass(frozen=True)
class KeptReport:
    """The document of a page as JSON, and its blocks."""

    document: bytes
    blocks: Mapping[str, bytes]  # gzip

    @staticmethod
    def of(data: PageData) -> KeptReport:
        """What is kept of a page."""
        text = json.dumps(data.document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return KeptReport(text.encode(), data.blocks)

    @property
    def size(self) -> int:
        """In bytes."""
        return len(self.document) + sum(map(len, self.blocks.values()))


class KeptReports:
    """Reports by id, the least recently used removed first. The newest is always kept."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.size = 0
        self._reports: OrderedDict[str, KeptReport] = OrderedDict()
        self._secret = secrets.token_bytes(32)  # so that nobody can guess the id of another person's text

    def __len__(self) -> int:
        return len(self._reports)

    def id(self, model: str, text: str, cut: tuple[int, int] | None = None) -> str:
        """The id of a text with a model, and a head cut in it: the same as long as the server runs."""
        named = json.dumps([model, text, cut]).encode()
        return hashlib.blake2b(named, key=self._secret, digest_size=16).hexdigest()

    def get(self, id: str) -> KeptReport | None:
        """The report, which is then the last used."""
        report = self._reports.get(id)
        if report is not None:
            self._reports.move_to_end(id)
        return report

    def add(self, id: str, report: KeptReport) -> None:
        """Keep a report, and remove the oldest that no longer fit."""
        old = self._reports.pop(id, None)
        self.size += report.size - (old.size if old else 0)
        self._reports[id] = report
        while self.size > self.most and len(self._reports) > 1:
            self.size -= self._reports.popitem(last=False)[1].size
