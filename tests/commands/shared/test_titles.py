"""Titles of texts and models."""

from regard.commands.shared.titles import model_titles, text_titles


def test_titles_tell_two_texts_and_two_models_apart(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "text.txt").write_text("x")
    files = [str(tmp_path / name / "text.txt") for name in ("a", "b")]
    assert text_titles([files[0], None], ["x", "y z"]) == ["text.txt", "“y z”"]
    assert text_titles(files, ["x", "y"]) == ["“x”", "“y”"]
    assert text_titles([None, None], ["q" * 50, "w " * 50]) == [f"“{'q' * 31}…”", f"“{'w ' * 15}w…”"]
    assert model_titles(["tiny", "runs/a/model/"]) == ["tiny", "model"]
    assert model_titles(["runs/a/model", "runs/b/model"]) == ["runs/a/model", "runs/b/model"]


def test_titles_escape_control_characters():
    assert text_titles([None], ["\x1b[31mred\n and \u202ered"]) == [r"“\x1b[31mred and \u202ered”"]
