"""`regard see … --against`: two texts, two models and two heads."""

import dataclasses
import json
import re

import pytest
import torch
from typer.testing import CliRunner

import regard
from regard import cli
from regard.commands.see_compare import model_titles, read_against, text_titles
from regard.gpt import GPT

CAT = "The cat sat on the mat. The cat sat on the rug"
DOG = "The dog ran to the tree. The dog ran to the house"


def see(*arguments):
    result = CliRunner().invoke(cli.app, ["see", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.stdout


def document(path):
    text = path.read_text(encoding="utf-8")
    return json.loads(re.search(r'id="regard-document">(.*?)</script>', text, flags=re.DOTALL).group(1))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """The model in the package with the output of head 0.2 set to 0."""
    model = GPT.from_pretrained("tiny")
    projection = next(one for name, one in model.named_modules() if name.endswith("out_proj"))
    width = projection.weight.shape[1] // model.config.num_heads
    with torch.no_grad():
        projection.weight[:, 2 * width : 3 * width] = 0
    folder = tmp_path_factory.mktemp("models") / "step-200"
    model.save_pretrained(folder)
    return folder


def test_two_texts_list_the_heads_that_changed_and_draw_the_first_of_them_twice():
    out = see(CAT, "--against", DOG)
    assert out.startswith("\n  tiny\n  before  “The cat sat on the mat. The cat…” · 14 tokens\n  after   “The dog ran")
    assert "after − before, the largest change first" in out
    first = re.search(r"\n  (\d\.\d) ", out).group(1)
    assert [line.split(" · ")[0] for line in out.splitlines() if line.startswith("  head ") and "·" in line] == [
        f"  head {first}"
    ] * 2
    assert f"As a page:    regard see '{CAT}' --against '{DOG}' -o page.html" in out
    assert max(len(line) for line in out.splitlines() if "regard see" not in line) <= 80


def test_the_table_is_that_of_the_comparison_of_two_reports(tmp_path):
    changes = json.loads(see(CAT, "--against", DOG, "--json"))["changes"]
    rows = re.findall(r"^  (\d\.\d)  ", see(CAT, "--against", DOG, "--all"), flags=re.MULTILINE)
    assert rows == [one["head"] for one in changes]
    assert len(rows) == 48
    sizes = [one["change"] for one in changes]
    assert sizes == sorted(sizes, reverse=True)


def test_a_checkpoint_is_compared_on_the_same_text(checkpoint):
    out = see(CAT, "--against-model", str(checkpoint), "--head", "4.3")
    assert out.startswith(
        "\n  “The cat sat on the mat. The cat…”\n  before  tiny · 14 tokens\n  after   step-200 · 14 tokens"
    )
    assert out.count("\n  head 4.3 · ") == 2
    assert "\n  before: tiny\n" in out


def test_two_heads_are_compared_statistic_by_statistic_and_both_are_drawn():
    out = see(CAT, "--head", "4.3", "--against-head", "0.2")
    assert re.search(r"\n  statistic +4\.3 +0\.2  difference\n  previous ", out)
    assert out.index("  head 4.3 · induction") < out.index("  head 0.2 · previous token")
    assert f"As a page: regard see '{CAT}' --head 4.3 --against-head 0.2 -o page.html" in out


def test_a_page_of_a_comparison_opens_in_compare_at_the_head_that_changed_most(tmp_path, checkpoint):
    page = tmp_path / "page.html"
    most = json.loads(see(CAT, "--against", DOG, "-o", str(page), "--json"))["changes"][0]["head"]
    written = document(page)
    assert [report["title"] for report in written["reports"]] == [
        "“The cat sat on the mat. The cat…”",
        "“The dog ran to the tree. The…”",
    ]
    layer, head = map(int, most.split("."))
    assert written["start"] == {"view": "compare", "layer": layer, "head": head}
    assert [[i for i, one in enumerate(report["layers"]) if one["steps"]] for report in written["reports"]] == [
        [layer],
        [layer],
    ]
    see(CAT, "--head", "4.3", "--against-head", "0.2", "-o", str(page))
    assert document(page)["start"] == {"view": "compare", "layer": 4, "head": 3, "against": "0.2"}
    see(CAT, "--head", "5.4", "-o", str(page))
    assert document(page)["start"] == {"layer": 5, "head": 4}


def test_the_same_text_twice_changes_nothing_and_draws_nothing():
    out = see("The cat sat", "--against", "The cat sat")
    assert "none of 48 heads changed" in out
    assert "A row is a token" not in out


def test_models_with_other_heads_are_refused_with_both_sizes(tmp_path):
    tiny = GPT.from_pretrained("tiny")
    small = GPT(dataclasses.replace(tiny.config, num_layers=2, d_model=24, num_heads=3, d_ff=None))
    small.tokenizer = tiny.tokenizer
    small.save_pretrained(tmp_path)
    message = r"^--against-model .* has 2 layers × 3 heads and tiny has 6 layers × 8 heads; only models with the same"
    with pytest.raises(ValueError, match=message):
        see("the", "--against-model", str(tmp_path))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--against", "a", "--against-head", "0.2"],
            r"^--against a and --against-head 0\.2 are two comparisons; leave",
        ),
        (["--against", "a", "--token", "cat"], r"^--token shows one run and --against compares two; leave one of them"),
        (["--against-head", "0.2", "--json"], r"^--json shows one run and --against-head compares two; leave one of"),
        (["--against", "a", "--save", "a.safetensors"], r"^--save shows one run and --against compares two"),
        (["--against", "a", "--layer", "4"], r"^--layer shows one run and --against compares two"),
        (["--against", "a", "-o", "a.svg"], r"^-o a\.svg is a figure of one head; a comparison is a page: -o a\.html$"),
        (["--against-head", "two"], r"^--against-head two must be a head, such as 4\.3, head 3 of layer 4$"),
        (["--against-head", "9.1"], r"^--against-head 9\.1: layer 9 does not exist: this report has 6 layers, 0 to 5$"),
        (["--head", "0.2", "--against-head", "0.2"], r"^--against-head 0\.2 is the head that is shown; choose another"),
        (["--against", "nowhere.txt"], r"^there is no file nowhere\.txt"),
        (
            ["--against", "a", "--ladder", "-o", "l.html"],
            r"^--ladder shows its own example, so a text and --against cannot be",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        see("The cat sat", *arguments)


def test_standard_input_is_one_text_at_most():
    with pytest.raises(ValueError, match=r"^only one of the two texts can be standard input, -; give the other as a"):
        see("-", "--against", "-")


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
    assert read_against(None, None, None) is None


@pytest.mark.parametrize(("options", "value"), [((), 0), (("--to", "mean"), "mean")])
def test_a_cut_is_compared_with_the_uncut_run(options, value):
    model = GPT.from_pretrained("tiny")
    ids = torch.tensor([model.tokenizer.encode(CAT)])
    with torch.no_grad(), regard.watch(model) as before:
        model(ids)
    with torch.no_grad(), regard.cut(model, [(0, 2), (1, 3)], to=value), regard.watch(model) as after:
        model(ids)
    expected = before.compare(after)
    printed = json.loads(see(CAT, "--cut", "0.2,1.3", *options, "--json"))["changes"]
    assert [one["head"] for one in printed] == [f"{one.layer}.{one.head}" for one in expected]
    assert printed[0]["change"] == pytest.approx(expected[0].size, abs=1e-6)


def test_a_cut_names_both_runs_and_the_next_command():
    out = see(CAT, "--cut", "0.2", "--to", "mean")
    assert out.startswith(
        "\n  tiny · “The cat sat on the mat. The cat…”\n  before  uncut · 14 tokens\n  after   without 0.2 (cut"
    )
    assert "\n  before: uncut\n" in out
    assert f"As a page:    regard see '{CAT}' --cut 0.2 --to mean -o page.html" in out


def test_a_page_of_a_cut_opens_the_comparison_and_has_steps_of_the_uncut_run_only(tmp_path):
    see(CAT, "--cut", "0.2", "-o", str(tmp_path / "page.html"))
    page = document(tmp_path / "page.html")
    assert [one["title"] for one in page["reports"]] == ["uncut", "without 0.2"]
    assert page["start"]["view"] == "compare"
    assert [any(layer["steps"] for layer in one["layers"]) for one in page["reports"]] == [True, False]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cut", "0.9"], r"--cut 0\.9: head 9 does not exist"),
        (["--cut", "9.0"], r"--cut 9\.0: layer 9 does not exist"),
        (["--cut", "4"], "--cut 4 must be heads, such as"),
        (["--to", "mean"], r"--to mean is what heads that are cut hand over; add --cut 0\.2"),
        (["--cut", "0.2", "--against", DOG], r"--against .* and --cut 0\.2 are two comparisons"),
        (["--cut", "0.2", "--token", "cat"], "--token shows one run and --cut compares two"),
    ],
)
def test_a_cut_that_cannot_be_made_says_why(arguments, message):
    with pytest.raises(ValueError, match=message):
        see(CAT, *arguments)


def test_titles_escape_control_characters():
    assert text_titles([None], ["\x1b[31mred\n and \u202ered"]) == [r"“\x1b[31mred and \u202ered”"]
