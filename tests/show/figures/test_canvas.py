"""What all figures share: matplotlib on demand, sizes, and files."""

import subprocess
import sys

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest

from regard.show.figures import canvas, save_figure

WORDS = ["The", " cat", " sat", " $5", " $x_1$"]


def test_without_matplotlib_the_error_names_the_extra(monkeypatch, watched):
    seen = watched(T=3)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(
        ImportError, match=r'figures need matplotlib, which is not installed; pip install ("\.\[plot\]"|matplotlib)$'
    ):
        seen[0, 1].plot()


@pytest.mark.parametrize(
    "draw",
    [
        lambda seen, **more: seen[0, 1].plot(**more),
        lambda seen, **more: seen.plot(**more),
        lambda seen, **more: seen.plot(by="entropy", **more),
        lambda seen, **more: seen.plot(by="role", **more),
        lambda seen, **more: seen.plot_layers("entropy", **more),
    ],
)
def test_a_figure_changes_no_settings_keeps_its_width_and_draws_into_given_axes(draw, watched, tmp_path):
    seen = watched(T=5, layers=3, tokens=WORDS)
    before = dict(mpl.rcParams)
    for width in (3.3, 6.9):
        axes = draw(seen, width=width)
        save_figure(axes, tmp_path / "figure.svg")
        assert axes.figure.get_figwidth() == width
        assert 0.5 < axes.figure.get_figheight() <= 9
    figure, (_, mine) = plt.subplots(1, 2, layout="constrained")
    opened = plt.get_fignums()
    assert draw(seen, ax=mine) is mine
    assert plt.get_fignums() == opened
    assert figure.get_size_inches().tolist() == mpl.rcParams["figure.figsize"]
    assert dict(mpl.rcParams) == before
    with pytest.raises(ValueError, match=r"width=5\.0 is for a new figure, and the Axes given as ax has its own"):
        draw(seen, ax=mine, width=5.0)
    with pytest.raises(
        ValueError, match=r"ax must be a matplotlib Axes, not a Figure; figure\.add_subplot\(\) makes one"
    ):
        draw(seen, ax=figure)
    with pytest.raises(
        ValueError, match=r"width=-2\.0 must be in inches, such as 3\.3 for a column or 6\.9 for a page"
    ):
        draw(seen, width=-2.0)


def test_text_in_svg_is_text_also_with_dollars(tmp_path, watched):
    axes = watched(T=5, tokens=WORDS)[0, 1].plot()
    save_figure(axes, tmp_path / "head.svg")
    content = (tmp_path / "head.svg").read_text()
    for word in ("The", "cat", "$5", "$x_1$", "0.1 "):
        assert f">{word}" in content
    assert 'width="237.6pt"' in content  # 3.3 inches


def test_pdf_has_truetype_fonts_and_the_same_picture_is_the_same_bytes(tmp_path, watched):
    seen = watched(T=5)
    for kind in ("pdf", "svg"):
        for name in ("a", "b"):
            save_figure(seen[0, 1].plot().figure, tmp_path / f"{name}.{kind}")
        assert (tmp_path / f"a.{kind}").read_bytes() == (tmp_path / f"b.{kind}").read_bytes()
    assert b"/FontFile2" in (tmp_path / "a.pdf").read_bytes()  # TrueType
    assert b"/Type3" not in (tmp_path / "a.pdf").read_bytes()


def test_files_of_no_known_format_and_things_without_a_figure_are_refused(tmp_path):
    axes = plt.figure().add_subplot()
    with pytest.raises(ValueError, match=r"head must end in \.svg, \.pdf, \.png or another format of matplotlib"):
        save_figure(axes, tmp_path / "head")
    with pytest.raises(ValueError, match="a figure or an Axes is saved, not a list"):
        save_figure([axes], tmp_path / "head.svg")


def test_a_note_has_as_many_lines_as_it_needs():
    axes = plt.figure(figsize=(2, 2)).add_subplot()
    parts = [f"part {i}" for i in range(11)]
    lines = canvas.note_below(axes, "   ".join(parts)).get_text().split("\n")
    assert "   ".join(lines).split("   ") == parts
    assert 1 < len(lines) < 11
    assert all(canvas.text_width(axes, line) <= canvas.size_of(axes)[0] for line in lines)


def test_drawing_text_and_importing_show_do_not_import_matplotlib():
    code = "import sys, regard.show, regard.show.figures; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_note_that_is_longer_than_a_line_is_broken_between_its_words():
    axes = canvas.axes_for(None, 3.0, canvas.COLUMN)
    words = "positions unknown: 14 × 5 queries attend to 15 keys, computed from an input of 2 × 31 × 32"
    written = canvas.note_below(axes, f"{words}   padding assumed").get_text()
    lines = written.split("\n")
    assert " ".join(lines).split() == f"{words} padding assumed".split()
    wide = canvas.size_of(axes)[0]
    assert all(canvas.text_width(axes, line) <= wide for line in lines)
    assert len(lines) > 1


@pytest.mark.parametrize(
    ("scale", "anchors"), [(canvas.weight_scale(), canvas.WEIGHTS), (canvas.signed_scale(7.0), canvas.SIGNED)]
)
def test_a_number_has_the_color_that_is_named_for_it(scale, anchors):
    most = scale["norm"].vmax
    for at, color in anchors.items():
        drawn = scale["cmap"](scale["norm"](most * at))
        np.testing.assert_allclose(drawn[:3], mpl.colors.to_rgb(color), atol=0.03)


def test_a_masked_cell_has_no_color_and_zero_has_one():
    scale = canvas.weight_scale()
    drawn = scale["cmap"](scale["norm"](np.ma.array([0.0, 0.0], mask=[True, False])))
    assert drawn[:, 3].tolist() == [0.0, 1.0]


def test_amounts_are_even_from_zero_also_where_all_are_zero():
    assert float(canvas.amount_scale(8.0)["norm"](2.0)) == 0.25
    assert float(canvas.amount_scale(0.0)["norm"](0.0)) == 0.0


def test_ink_can_be_read_on_its_color():
    assert [canvas.ink_on(mpl.colors.to_rgb(color)) for color in canvas.WEIGHTS.values()] == ["#000000"] * 4 + [
        "#ffffff"
    ] * 2


def test_a_tint_is_between_white_and_the_color():
    assert canvas.tint("#000000", 0.25).tolist() == [0.75, 0.75, 0.75]
