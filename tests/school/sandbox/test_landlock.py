"""Landlock: what is granted can be read or written, and nothing else, with every version that a kernel may have."""

import os
import subprocess
import sys

import pytest

from regard.school.sandbox.landlock import READ, READ_DIR, landlock_version, read_grants

try:
    VERSION = landlock_version()
except OSError:
    VERSION = 0
needs_landlock = pytest.mark.skipif(not VERSION, reason="needs Landlock")


@pytest.fixture
def house(tmp_path):
    """A library with a package that is hidden."""
    for name in ("lib/numbers/a.py", "lib/regard/secret.py", "lib/words.py", "work/mine.txt", "outside/file"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


def run(house, code: str, version: int | None = None) -> str:
    """What a restricted process prints: it may read lib without lib/regard, and write work."""
    grants = [*read_grants([house / "lib", sys.base_prefix], [house / "lib" / "regard"]), (str(house / "work"), 0x7FFF)]
    text = f"""
import os
from regard.school.sandbox.landlock import restrict_files
def can(action, *arguments):
    try: action(*arguments)
    except PermissionError: return False
    except OSError as error: return error.errno
    return True
restrict_files({grants}, {version})
os.chdir({str(house)!r})
print({code})
"""
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout.strip()


def test_a_folder_with_nothing_hidden_is_granted_whole(house):
    assert read_grants([house / "lib"]) == [(str(house / "lib"), READ)]
    assert read_grants([house / "lib"], [house / "outside"]) == [(str(house / "lib"), READ)]


def test_a_folder_with_something_hidden_is_granted_entry_by_entry(house):
    lib = house / "lib"
    assert sorted(read_grants([lib], [lib / "regard"])) == sorted(
        [(str(lib), READ_DIR), (str(lib / "numbers"), READ), (str(lib / "words.py"), READ)]
    )


def test_a_hidden_folder_inside_several_roots_stays_hidden(house):
    grants = dict(read_grants([house, house / "lib", house / "lib" / "regard"], [house / "lib" / "regard"]))
    assert grants[str(house / "lib")] == READ_DIR
    assert not any(path.startswith(str(house / "lib" / "regard")) for path in grants)


def test_a_link_does_not_grant_what_it_leads_to(house):
    lib = house / "lib"
    (lib / "link").symlink_to(house / "outside")
    (lib / "again").symlink_to(lib / "regard")
    assert {path for path, _ in read_grants([lib], [lib / "regard"])} == {
        str(lib),
        str(lib / "numbers"),
        str(lib / "words.py"),
    }


def test_a_hidden_path_by_way_of_a_link_is_hidden(house):
    (house / "alias").symlink_to(house / "lib" / "regard")
    assert str(house / "lib" / "regard") not in dict(read_grants([house / "lib"], [house / "alias"]))


@needs_landlock
@pytest.mark.parametrize("version", range(1, VERSION + 1))
def test_only_what_is_granted_can_be_read_and_written(house, version):
    assert run(house, "can(open, 'lib/words.py'), can(open, 'lib/numbers/a.py')", version) == "True True"
    assert run(house, "can(open, 'lib/regard/secret.py'), can(open, 'outside/file')", version) == "False False"
    assert run(house, "can(open, 'work/new', 'w'), can(open, 'lib/words.py', 'a')", version) == "True False"
    assert run(house, "can(os.unlink, 'outside/file'), can(os.mkdir, 'outside/new')", version) == "False False"
    assert run(house, "can(os.unlink, 'work/mine.txt'), can(os.mkdir, 'work/new2')", version) == "True True"
    assert (house / "outside" / "file").read_text() == "outside/file"


@needs_landlock
@pytest.mark.skipif(VERSION < 3, reason="needs a Landlock that knows truncating")
def test_truncating_is_writing(house):
    assert run(house, "can(os.truncate, 'lib/words.py', 0), can(os.truncate, 'work/mine.txt', 1)") == "False True"
    assert (house / "lib" / "words.py").read_text() == "lib/words.py"


@needs_landlock
def test_a_link_cannot_be_granted(house):
    (house / "link").symlink_to(house / "outside")
    code = f"from regard.school.sandbox.landlock import *; restrict_files([({str(house / 'link')!r}, READ)])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "is a symbolic link; grant what it leads to" in done.stderr
    assert os.path.exists(house / "link")
