import json
import re

import pytest
import torch

from regard.school.exercises.answer import NOT_UTF8, check_answer
from regard.school.exercises.exercise import Exercise, Function, Judged, load_exercise
from regard.support.drawing import as_text
from school.exercises.exercises_for_tests import ANSWER, SCALED


@pytest.fixture
def checked(exercise, worker, tmp_path):
    """The verdict on an answer, which is given as text."""

    def check(source, **options):
        path = tmp_path / "09_scale.py"
        path.write_text(source)
        return check_answer(exercise, worker, path, **options)

    return check


def test_the_right_answer_passes_with_every_seed(checked):
    for verdict in (checked(ANSWER), checked(ANSWER), checked(ANSWER, seed=3)):
        assert (verdict.status, verdict.name, verdict.task) == ("right", "scale", "Divide the scores by √head_dim.")


def test_a_named_wrong_answer_is_told_with_its_numbers_and_its_line(checked):
    (one,) = checked(ANSWER.replace("**0.5\n\n", "\n\n", 1), seed=5).findings
    assert (one.name, one.says, one.why) == ("missing root", "The scores are divided by 7; it is √7.", "Variances add.")
    assert (one.line, one.code) == (8, "return scores / head_dim")
    expected = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(5))[0] / 7**0.5
    torch.testing.assert_close(one.example.expected, expected.double())
    torch.testing.assert_close(one.example.seen, expected.double() / 7**0.5)
    assert one.example.about == "scale(scores = 2 × 3 × 5, head_dim = 7): the result, at [0]"


def test_a_choice_without_its_quotes_is_told_them(checked):
    (one,) = checked(ANSWER.replace('answer_1 = "b"', "answer_1 = a")).findings
    assert (one.name, one.code) == ("does not run", "answer_1 = a")
    assert one.says.endswith("NameError: name 'a' is not defined. A choice stands in quotes: \"a\".")


def test_a_number_that_differs_is_told_with_its_call(worker, tmp_path):
    double = Function("scale", lambda random: (7, [2, 3]), right=lambda n, sizes: 2 * n)
    exercise = Exercise("double", "Double.", (double,))
    (tmp_path / "answer.py").write_text("def scale(n, sizes):\n    return n * n\n")
    (one,) = check_answer(exercise, worker, tmp_path / "answer.py").findings
    assert one.says == "scale(n = 7, sizes = [2, 3]) returns 49; expected 14."


def test_an_unknown_wrong_answer_gets_no_name(checked):
    verdict = checked(ANSWER.replace(SCALED, "scores + 1"))
    assert verdict.findings[0].name == ""
    assert "✗ scale: unknown mistake" in as_text(verdict, 80)


@pytest.mark.parametrize(
    ("written", "name", "says"),
    [
        ("return ...", "not written yet", "Line 8 is not written yet."),
        ("return (", "does not run", r"The file does not run: '\(' was never closed \(SyntaxError\)."),
        (
            "scores / 2",
            "returns nothing",
            r"returns None; expected a tensor of shape \(2, 3, 5\). Is there a return\?",
        ),
        (
            "return scores[0]",
            "an axis is gone",
            r"returns a tensor of shape \(3, 5\); expected .* \(2, 3, 5\)\. The result",
        ),
        ("return 'much'", "another kind of result", "returns 'much'; expected a tensor of shape"),
        ("return scale", "another kind of result", "returns a function; expected a tensor"),
        (
            "return scores @ scores",
            "inner sizes differ",
            "It fails: RuntimeError: Expected size for first two dimensions",
        ),
        ("return math.isqrt(0.5)", "an integer root", r"isqrt\(\) takes whole numbers."),
        ("return scores.new_zeros(1 << 33)", "out of memory", "It needs more memory than it may have."),
    ],
)
def test_what_goes_wrong_has_a_name_and_a_line(checked, written, name, says):
    (one,) = checked(ANSWER.replace(f"return {SCALED}", written)).findings
    assert (one.name, one.line) == (name, 8)
    assert re.search(says, one.says), one.says


def test_several_lines_that_are_not_written_are_listed(checked):
    source = ANSWER.replace(SCALED, "...").replace("least + 1", "...").replace('"b"', "...")
    assert checked(source).findings[0].says == "Line 4 is not written yet, nor are lines 8 and 12."


def test_the_first_part_that_is_wrong_is_reported_alone(checked):
    verdict = checked(ANSWER.replace('"b"', '"a"').replace("least + 1", "least"))
    assert [(one.name, one.says) for one in verdict.findings] == [("answer_1: a", "Not a, because b.")]
    verdict = checked(ANSWER.replace("least + 1", "least"))
    assert verdict.name == "large"
    assert [(one.name, one.says, one.why) for one in verdict.findings] == [
        ("too small", "5 is not more than 5.", "More is asked for.")
    ]


def test_a_layer_is_checked_by_the_whole_engine(checked):
    verdict = checked(ANSWER.replace(" / k.shape[-1] ** 0.5", ""))
    assert [(one.name, one.line) for one in verdict.mistakes] == [("no scale", 16)]


@pytest.mark.parametrize(("gone", "name"), [("def scale", "scale"), ("answer_1", "answer_1"), ("def att", "attention")])
def test_a_missing_name_is_said(checked, gone, name):
    (one,) = checked(ANSWER.replace(gone, gone + "_")).findings
    assert (one.name, one.says) == ("not defined", f"It defines no {name}.")


def test_a_value_in_place_of_a_function_is_said(checked):
    (one,) = checked(ANSWER + "\nscale = 7\n").findings
    assert (one.name, one.says) == ("not a function", "scale is the number 7, not a function.")


def test_a_judge_that_fails_says_what_it_was_given(checked):
    (one,) = checked(ANSWER.replace("least + 1", "'many'")).findings
    assert one.says.startswith("It returns 'many', which cannot be judged: TypeError: '>' not supported")


def test_an_error_while_the_file_runs_has_its_line(checked):
    verdict = checked(ANSWER + "\nmath.sqrt('x')\n")
    assert (verdict.name, verdict.findings[0].name, verdict.findings[0].line) == ("09_scale.py", "does not run", 18)
    assert verdict.findings[0].says == "The file does not run: TypeError: must be real number, not str."


def test_an_endless_loop_ends_with_its_time(checked):
    verdict = checked(ANSWER.replace(f"return {SCALED}", "while True: pass"), seconds=1)
    says = "out of time: It did not end within 1 s, in line 8. Is there a loop that never ends?"
    assert (verdict.status, verdict.problem) == ("unchecked", says)


def test_what_is_printed_comes_along_and_regard_can_be_imported(checked):
    verdict = checked(f"import regard\nprint(regard.causal)\n{ANSWER}")
    assert verdict.is_right
    assert "causal" in verdict.printed


def test_results_to_be_drawn_come_along_but_not_into_json(checked):
    verdict = checked(ANSWER)
    assert [t.shape for t in verdict.pictures] == [(2, 3, 5)]
    assert "pictures" not in json.loads(json.dumps(verdict.as_json()))
    assert len(verdict.pictures) == 1


def test_a_file_that_cannot_be_read_is_not_checked(exercise, worker, tmp_path):
    (tmp_path / "latin.py").write_bytes(b"# gr\xf6sse")
    assert check_answer(exercise, worker, tmp_path / "latin.py").problem == NOT_UTF8
    assert check_answer(exercise, worker, tmp_path / "no.py").problem == "it cannot be read: No such file or directory"


def test_a_byte_order_mark_is_no_mistake(exercise, worker, tmp_path):
    path = tmp_path / "09_scale.py"
    path.write_text(ANSWER, encoding="utf-8-sig")
    assert check_answer(exercise, worker, path).is_right


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-16-le"])
def test_another_encoding_is_told_its_remedy(encoding, exercise, worker, tmp_path):
    path = tmp_path / "09_scale.py"
    path.write_text(
        f"# é\n{ANSWER.replace('√', 'root')}".encode("latin-1", "replace").decode("latin-1"), encoding=encoding
    )
    verdict = check_answer(exercise, worker, path)
    assert (verdict.status, verdict.problem) == ("unchecked", NOT_UTF8)


def test_a_wrong_choice_is_told_while_other_parts_are_not_written(checked):
    (one,) = checked(ANSWER.replace('"b"', '"a"').replace(SCALED, "...")).findings
    assert (one.name, one.says) == ("answer_1: a", "Not a, because b.")
    (one,) = checked(ANSWER.replace(SCALED, "...")).findings
    assert one.name == "not written yet"


def test_names_that_the_task_does_without_are_found(worker, tmp_path):
    double = Function("double", lambda random: (torch.ones(3),), right=lambda x: 2 * x)
    exercise = Exercise("double", "Double.", (double,), without={"add": "Write +."})
    path = tmp_path / "answer.py"
    for line in ("return torch.add(x, x)", "from torch import add as plus\n    return plus(x, x)"):
        path.write_text(f"import torch\n\n\ndef double(x):\n    {line}\n")
        (one,) = check_answer(exercise, worker, path).findings
        assert (one.name, one.says) == ("ready in torch", "It uses add, which is ready in torch. Write +.")
    path.write_text("def add(x, y):\n    return x + y\n\n\ndef double(x):\n    return add(x, x)\n")
    assert check_answer(exercise, worker, path).is_right


def test_a_result_in_another_dtype_is_a_mistake_where_that_is_asked(worker, tmp_path):
    half = lambda random: (torch.ones(3, dtype=torch.float16),)  # noqa: E731
    (tmp_path / "answer.py").write_text("def double(x):\n    return 2 * x.float()\n")
    for same, names in ((False, []), (True, ["another dtype"])):
        exercise = Exercise("double", "Double.", (Function("double", half, lambda x: 2 * x, same_dtype=same),))
        assert [one.name for one in check_answer(exercise, worker, tmp_path / "answer.py").findings] == names


def test_an_answer_that_takes_all_from_regard_is_told_so(worker, tmp_path):
    (tmp_path / "exercise.py").write_text(
        '"""Double."""\nfrom regard.school.exercises import Function\n'
        'parts = [Function("double", lambda random: (3,), lambda x: 2 * x)]\n'
    )
    (tmp_path / "solution.py").write_text("def double(x):\n    return x + x\n")
    path = tmp_path / "answer.py"
    path.write_text("import regard.steps\n\n\ndef double(x):\n    return x + x\n")
    verdict = check_answer(load_exercise(tmp_path), worker, path)
    assert (verdict.is_right, verdict.notes) == (
        True,
        ["It imports regard, where all of this is ready. It counts; but write it once yourself."],
    )


IN_PLACE = {
    "x += 1\n    return x": "in-place change of an argument",
    "x.add_(1)\n    return x": "in-place change of an argument",
    "x += 1\n    return 3 * x.sin()": "in-place change of an argument",  # wrong as well, and for that there is no name
    "x += 1\n    return -x": "sign reversed",
    "x = x.clone()\n    x += 1\n    return x": "",
    "y = x\n    y = y + 1\n    return y": "",
}


def test_an_argument_that_is_changed_is_a_mistake_also_where_the_result_is_right(worker, tmp_path):
    one_more = Function("more", lambda random: (3, torch.rand(2, 3, generator=random)), lambda n, x: x + 1)
    for line, name in IN_PLACE.items():
        (tmp_path / "answer.py").write_text(f"def more(n, x):\n    {line}\n")
        findings = check_answer(Exercise("more", "More.", (one_more,)), worker, tmp_path / "answer.py").findings
        assert (line, [one.name for one in findings]) == (line, [name] * bool(name))
        if name.startswith("in-place"):
            assert findings[0].says == "After the call, x holds other values than before it."


def test_a_list_that_is_changed_is_told_by_its_place_and_what_calls_it_may_change_all(worker, tmp_path):
    def through(longer, ids):
        return longer(ids)

    (tmp_path / "answer.py").write_text("def longer(ids):\n    ids.append(7)\n    return ids\n")
    for called, says in (None, ["After the call, argument 0 holds other values than before it."]), (through, []):
        part = Judged("longer", lambda random: ([1, 2],), lambda seen, ids: None, through=called)
        findings = check_answer(Exercise("longer", "Longer.", (part,)), worker, tmp_path / "answer.py").findings
        assert [one.says for one in findings] == says
