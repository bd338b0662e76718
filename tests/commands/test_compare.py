"""`regard compare`: two texts, two models, two heads, and heads cut."""

import dataclasses
import json
import re

import pytest
import torch
from typer.testing import CliRunner

import regard
from regard import cli
from regard.gpt import GPT

CAT = "The cat sat on the mat. The cat sat on the rug"
DOG = "The dog ran to the tree. The dog ran to the house"


def compare(*arguments):
    result = CliRunner().invoke(cli.app, ["compare", *arguments])
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
    out = compare(CAT, DOG)
    assert out.startswith("\n  tiny\n  before  “The cat sat on the mat. The cat…” · 14 tokens\n  after   “The dog ran")
    assert "after − before, the largest change first" in out
    first = re.search(r"\n  (\d\.\d) ", out).group(1)
    assert [line.split(" · ")[0] for line in out.splitlines() if line.startswith("  head ") and "·" in line] == [
        f"  head {first}"
    ] * 2
    assert f"As a page:    regard compare '{CAT}' '{DOG}' -o page.html" in out
    assert max(len(line) for line in out.splitlines() if "regard compare" not in line) <= 80


def test_the_table_is_that_of_the_comparison_of_two_reports(tmp_path):
    changes = json.loads(compare(CAT, DOG, "--json"))["changes"]
    rows = re.findall(r"^  (\d\.\d)  ", compare(CAT, DOG, "--all"), flags=re.MULTILINE)
    assert rows == [one["head"] for one in changes]
    assert len(rows) == 48
    sizes = [one["change"] for one in changes]
    assert sizes == sorted(sizes, reverse=True)


def test_a_checkpoint_is_compared_on_the_same_text(checkpoint):
    out = compare(CAT, "--model", "tiny", "--model", str(checkpoint), "--head", "4.3")
    assert out.startswith(
        "\n  “The cat sat on the mat. The cat…”\n  before  tiny · 14 tokens\n  after   step-200 · 14 tokens"
    )
    assert out.count("\n  head 4.3 · ") == 2
    assert "\n  before: tiny\n" in out


def test_two_heads_are_compared_statistic_by_statistic_and_both_are_drawn():
    out = compare(CAT, "--head", "4.3", "--head", "0.2")
    assert re.search(r"\n  statistic +4\.3 +0\.2  difference\n  previous ", out)
    assert out.index("  head 4.3 · induction") < out.index("  head 0.2 · previous token")
    assert f"As a page: regard compare '{CAT}' --head 4.3 --head 0.2 -o page.html" in out


def test_a_page_of_a_comparison_opens_in_compare_at_the_head_that_changed_most(tmp_path, checkpoint):
    page = tmp_path / "page.html"
    most = json.loads(compare(CAT, DOG, "--json"))["changes"][0]["head"]
    assert compare(CAT, DOG, "-o", str(page)) == f"\n  Wrote {page}\n"
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
    compare(CAT, "--head", "4.3", "--head", "0.2", "-o", str(page))
    assert document(page)["start"] == {"view": "compare", "layer": 4, "head": 3, "against": "0.2"}


def test_the_same_text_twice_changes_nothing_and_draws_nothing():
    out = compare("The cat sat", "The cat sat")
    assert "none of 48 heads changed" in out
    assert "A row is a token" not in out


def test_models_with_other_heads_are_refused_with_both_sizes(tmp_path):
    tiny = GPT.from_pretrained("tiny")
    small = GPT(dataclasses.replace(tiny.config, num_layers=2, d_model=24, num_heads=3, d_ff=None))
    small.tokenizer = tiny.tokenizer
    small.save_pretrained(tmp_path)
    message = r"^--model .* has 2 layers × 3 heads and tiny has 6 layers × 8 heads; only models with the same"
    with pytest.raises(ValueError, match=message):
        compare("the", "--model", "tiny", "--model", str(tmp_path))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], r"^there is nothing to compare; give two texts, --model twice, --head twice, or --cut 0\.2$"),
        (["--head", "0.2"], r"^there is nothing to compare; give two texts"),
        (
            ["a", "--head", "0.2", "--head", "4.3"],
            r"^two texts and two heads are two comparisons; leave one of them out$",
        ),
        (
            ["--head", "0.2,4.3", "--json"],
            r"^--json cannot be used here: two heads are compared, not all of them; leave",
        ),
        (["a", "-o", "a.svg"], r"^-o a\.svg: a comparison is a page, FILE\.html; try -o a\.html$"),
        (
            ["a", "-o", "a.html", "--all"],
            r"^--all cannot be used here: with -o, a page is written instead; leave one of",
        ),
        (["a", "--steps", "1"], r"^--steps cannot be used here: that is about a page; add -o page\.html$"),
        (["a", "--max-tokens", "0"], r"^--max-tokens 0 must be at least 1$"),
        (["--head", "two"], r"^--head two must be heads, such as 4\.3, head 3 of layer 4; or several: 4\.3,0\.2$"),
        (
            ["--head", "0.2", "--head", "9.1"],
            r"^--head 9\.1: layer 9 does not exist: this report has 6 layers, 0 to 5$",
        ),
        (["a", "--head", "9.1"], r"^layer 9 does not exist: this report has 6 layers, 0 to 5$"),
        (["--head", "0.2", "--head", "0.2"], r"^--head 0\.2 was given twice; give another head$"),
        (["--head", "0.2,0.3,0.4"], r"^two are compared, and --head was given more often$"),
        (["--model", "a", "--model", "b", "--model", "c"], r"^two are compared, and --model was given more often$"),
        (["nowhere.txt"], r"^there is no file nowhere\.txt"),
    ],
)
def test_what_cannot_be_compared_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        compare("The cat sat", *arguments)


def test_standard_input_is_one_text_at_most():
    with pytest.raises(ValueError, match=r"^only one of the two texts can be standard input, -; give the other as a"):
        compare("-", "-")


@pytest.mark.parametrize(("options", "value"), [((), 0), (("--to", "mean"), "mean")])
def test_a_cut_is_compared_with_the_uncut_run(options, value):
    model = GPT.from_pretrained("tiny")
    ids = torch.tensor([model.tokenizer.encode(CAT)])
    with torch.no_grad(), regard.watch(model) as before:
        model(ids)
    with torch.no_grad(), regard.cut(model, [(0, 2), (1, 3)], to=value), regard.watch(model) as after:
        model(ids)
    expected = before.compare(after)
    printed = json.loads(compare(CAT, "--cut", "0.2,1.3", *options, "--json"))["changes"]
    assert [one["head"] for one in printed] == [f"{one.layer}.{one.head}" for one in expected]
    assert printed[0]["change"] == pytest.approx(expected[0].size, abs=1e-6)


def test_a_cut_names_both_runs_and_the_next_command():
    out = compare(CAT, "--cut", "0.2", "--to", "mean")
    assert out.startswith(
        "\n  tiny · “The cat sat on the mat. The cat…”\n  before  uncut · 14 tokens\n  after   without 0.2 (cut"
    )
    assert "\n  before: uncut\n" in out
    assert f"As a page:    regard compare '{CAT}' --cut 0.2 --to mean -o page.html" in out


def test_a_page_of_a_cut_opens_the_comparison_and_has_steps_of_the_uncut_run_only(tmp_path):
    compare(CAT, "--cut", "0.2", "-o", str(tmp_path / "page.html"))
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
        ([DOG, "--cut", "0.2"], r"^two texts and --cut 0\.2 are two comparisons; leave one of them out$"),
    ],
)
def test_a_cut_that_cannot_be_made_says_why(arguments, message):
    with pytest.raises(ValueError, match=message):
        compare(CAT, *arguments)
