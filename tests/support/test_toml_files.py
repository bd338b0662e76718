import pytest

from regard.support.toml_files import read_toml


def test_values_and_tables_are_read(tmp_path):
    file = tmp_path / "course.toml"
    file.write_text('title = "Größe"\n[[chapter]]\nexercises = ["a", "b"]\n', encoding="utf-8")
    assert read_toml(file) == {"title": "Größe", "chapter": [{"exercises": ["a", "b"]}]}


@pytest.mark.parametrize("content", [b"title = ", b"title = \xff", b"a = " + b"[" * 9999])
def test_what_is_no_toml_is_an_error_with_the_file(content, tmp_path):
    file = tmp_path / "course.toml"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"course\.toml is not TOML"):
        read_toml(file)
