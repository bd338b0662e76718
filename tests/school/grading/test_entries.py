import io
import os
import stat
import zipfile

import pytest

from regard.school.grading.entries import MOST_FILES, find_submissions, opened_entry

SOURCE = "x = 3\n"


def make(folder, *names, text=SOURCE):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / names[0].split("/")[0]


def zipped(path, files, **changes):
    """A .zip with these files; changes: of every entry in it."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            one = zipfile.ZipInfo(name)
            one.compress_type = zipfile.ZIP_DEFLATED
            for attribute, value in changes.items():
                setattr(one, attribute, value)
            archive.writestr(one, data)
    return path


def opened(path, wanted=""):
    """What is run, relative to the entry where it is in it; and the source."""
    with opened_entry(path, wanted) as one:
        assert (one.path if one.file is None else one.path / one.file).read_text() == one.source
        return one.path == path, one.file, one.source


def test_every_entry_is_a_submission_or_named_as_ignored(tmp_path):
    system = (".DS_Store", ".hidden.py", "Thumbs.db", "__MACOSX/c.py", "__pycache__/c.py", "desktop.ini")
    kept = ("__d__.py", "a/homework.py", "b.PY", "c.ipynb", "empty/.keep", "notes.txt", "z.zip")
    make(tmp_path, *system, *kept)
    paths, ignored = find_submissions(tmp_path)
    assert [path.name for path in paths] == ["__d__.py", "a", "b.PY", "c.ipynb", "empty", "notes.txt", "z.zip"]
    assert ignored == sorted(name.split("/")[0] for name in system)
    assert len(paths) + len(ignored) == len(os.listdir(tmp_path))


def test_a_folder_without_entries_is_refused(tmp_path):
    make(tmp_path, ".DS_Store")
    with pytest.raises(ValueError, match=r"has no submissions: no \.py or \.ipynb file, no \.zip, and no folder"):
        find_submissions(tmp_path)


@pytest.mark.parametrize(
    ("files", "wanted", "file"),
    [
        (["a/homework.py"], "", "homework.py"),
        (["a/week 3/src/homework.py", "a/week 3/README.md"], "", "week 3/src/homework.py"),
        (["a/homework.py", "a/lib/helper.py"], "", "homework.py"),
        (["a/homework.py", "a/.ipynb_checkpoints/homework.py", "a/__pycache__/x.py"], "", "homework.py"),
        (["a/one.py", "a/two.py"], "two.py", "two.py"),
        (["a/one.py", "a/src/two.py"], "two.py", "src/two.py"),
        (["a/src/one.py", "a/lib/one.py"], "lib/one.py", "lib/one.py"),
    ],
)
def test_the_one_file_of_a_folder_is_found_as_high_up_as_there_is_any(tmp_path, files, wanted, file):
    assert opened(make(tmp_path, *files), wanted) == (True, file, SOURCE)


@pytest.mark.parametrize("text", ["class SelfAttention:\n    pass\n", "def attention(q, k, v):\n    return v\n"])
def test_of_several_files_the_one_that_defines_attention_is_found(tmp_path, text):
    make(tmp_path, "a/model.py", text=text)
    assert opened(make(tmp_path, "a/config.py", "a/train.py")) == (True, "model.py", text)
    make(tmp_path, "a/old.py", text=text)
    with pytest.raises(ValueError, match=r"a has 4 Python files \(config\.py, model\.py, old\.py, …\)"):
        opened(tmp_path / "a")
    assert opened(tmp_path / "a", "train.py") == (True, "train.py", SOURCE)


def test_attention_in_a_package_is_found_below_a_file_that_only_uses_it(tmp_path):
    make(tmp_path, "a/layers/attention.py", text="class SelfAttention:\n    pass\n")
    make(tmp_path, "a/tests/test_layers.py", text="def test_attention():\n    pass\n")
    assert opened(make(tmp_path, "a/main.py")) == (True, "layers/attention.py", "class SelfAttention:\n    pass\n")


def test_a_file_in_capitals_is_run_as_python(tmp_path):
    assert opened(make(tmp_path, "b.PY")) == (False, None, SOURCE)


def test_a_notebook_is_run_as_the_python_that_was_read_from_it(tmp_path, monkeypatch):
    path = make(tmp_path, "ana.ipynb", text="{}")
    monkeypatch.setattr("regard.school.grading.entries.read_source", lambda path: f"# {path.suffix}\n")
    assert opened(path) == (False, None, "# .ipynb\n")


def test_a_zip_is_opened_and_so_is_the_only_one_of_a_folder(tmp_path):
    files = {"ana/homework.py": SOURCE, "__MACOSX/ana/._homework.py": "\0", "ana/plot.png": "x"}
    assert opened(zipped(tmp_path / "ana.zip", files))[1:] == ("ana/homework.py", SOURCE)
    (tmp_path / "ben").mkdir()
    zipped(tmp_path / "ben" / "hw.zip", {"homework.py": SOURCE})
    assert opened(tmp_path / "ben")[1:] == ("homework.py", SOURCE)
    inner = io.BytesIO()
    zipped(inner, {"homework.py": SOURCE})
    with pytest.raises(ValueError, match=r"inner\.zip is a \.zip inside a \.zip; hand in the Python file"):
        opened(zipped(tmp_path / "outer.zip", {"inner.zip": inner.getvalue()}))


@pytest.mark.parametrize(
    ("files", "changes", "says"),
    [
        ({"../a.py": SOURCE}, {}, r"a\.zip has a file outside of its folder, \.\./a\.py; it was not opened"),
        ({"/etc/a.py": SOURCE}, {}, "has a file outside of its folder"),
        ({"C:/a.py": SOURCE}, {}, "has a file outside of its folder"),
        ({"a.py": "/etc/passwd"}, {"external_attr": (stat.S_IFLNK | 0o777) << 16}, r"has a link, a\.py"),
        ({"a.py": b"\0" * (1 << 20)}, {}, r"has a file that grows 200 times and more, a\.py; it was not opened"),
        ({f"{i}.py": "" for i in range(MOST_FILES + 1)}, {}, "has more than 1000 files"),
        (
            {"a.py": SOURCE, "b.py": SOURCE},
            {},
            r"^a\.zip has 2 Python files \(a\.py, b\.py\); name the one: file = … in",
        ),
        ({"a.txt": SOURCE}, {}, "has no Python file and no notebook; hand in a .py or .ipynb file"),
        ({"a.py": SOURCE}, {"compress_type": zipfile.ZIP_BZIP2}, "is packed in an unusual way; zip it again"),
    ],
)
def test_a_zip_that_is_unsafe_is_refused_with_a_sentence(tmp_path, files, changes, says):
    with pytest.raises(ValueError, match=says):
        opened(zipped(tmp_path / "a.zip", files, **changes))
    assert [path.name for path in tmp_path.rglob("*")] == ["a.zip"]


def test_a_zip_cannot_say_that_it_is_smaller_than_it_is(tmp_path):
    path = zipped(tmp_path / "a.zip", {"a.py": os.urandom(1 << 16)})
    data = path.read_bytes()
    size = (1 << 16).to_bytes(4, "little")
    path.write_bytes(data.replace(size, (10).to_bytes(4, "little")))
    with pytest.raises(ValueError, match=r"a\.zip (cannot be opened|has no)"):
        opened(path)


def test_a_zip_with_more_than_fits_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("regard.school.grading.entries.LARGEST_FILE", 1000)
    with pytest.raises(ValueError, match=r"a\.zip holds more than 1000 bytes; hand in the Python file alone"):
        opened(zipped(tmp_path / "a.zip", {"a.py": "#" + "x" * 600, "b.py": "#" + "y" * 600}))
    (tmp_path / "b.zip").write_bytes(os.urandom(1001))
    with pytest.raises(ValueError, match=r"b\.zip has 1001 bytes; at most 1000"):
        opened(tmp_path / "b.zip")


@pytest.mark.parametrize("data", [b"", b"PK\3\4", b"no zip"])
def test_what_is_no_zip_says_so(tmp_path, data):
    (tmp_path / "a.zip").write_bytes(data)
    with pytest.raises(ValueError, match=r"a\.zip cannot be opened: .*; hand in the Python file"):
        opened(tmp_path / "a.zip")


def test_what_is_no_submission_says_what_to_do(tmp_path):
    (tmp_path / "empty").mkdir()
    os.mkfifo(tmp_path / "fifo.py")
    (tmp_path / "link.py").symlink_to(make(tmp_path, "secret.py"))
    make(tmp_path, "linked/data.txt")
    (tmp_path / "linked" / "homework.py").symlink_to(tmp_path / "secret.py")
    make(tmp_path, "large.py", text="#" * 1_100_000)
    make(tmp_path, "notes.txt")
    cases = {
        "empty": "empty has no Python file and no notebook; hand in a .py or .ipynb file",
        "fifo.py": "fifo.py is no file and no folder",
        "gone.py": "gone.py does not exist",
        "large.py": "large.py has 1100000 bytes; at most 1048576",
        "link.py": "link.py is a symbolic link; a submission is a file or a folder",
        "linked": "linked has no Python file and no notebook; hand in a .py or .ipynb file",
        "notes.txt": "notes.txt is no .py, .ipynb or .zip file and no folder; rename it, or move it elsewhere",
    }
    said = {}
    for name in cases:
        with pytest.raises(ValueError, match=name) as error:
            opened(tmp_path / name)
        said[name] = str(error.value)
    assert said == cases
