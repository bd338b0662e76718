"""A right verdict names the lines that no experiment ran."""

import sys
import textwrap

from regard.school.check.check import check_subject
from regard.school.check.explain.lines_not_run import lines_not_run
from regard.school.check.learner_code.loading import load_file
from regard.school.check.learner_code.recording import Lines
from regard.school.check.request import Request

LAYER = textwrap.dedent("""\
    import math
    from torch import nn
    class MultiHeadAttention(nn.Module):
        def __init__(self, d_model, num_heads):
            super().__init__()
            if d_model % num_heads:
                raise ValueError("does not divide")
            self.h, self.d = num_heads, d_model // num_heads
            self.q, self.k, self.v, self.o = (nn.Linear(d_model, d_model) for _ in range(4))
        def heads(self, t):
            return t.view(*t.shape[:2], self.h, self.d).transpose(1, 2)
        def forward(self, x):
            q, k, v = self.heads(self.q(x)), self.heads(self.k(x)), self.heads(self.v(x))
            context = (q @ k.mT / math.sqrt(self.d)).softmax(-1) @ v
            if x.shape[1] > 5000:
                context = context * 0
                context = context + 1
            return self.o(context.transpose(1, 2).reshape(x.shape))
    def never_called(x):
        return x
    """)


def verdict_on(source, tmp_path):
    path = tmp_path / "homework.py"
    path.write_text(source, encoding="utf-8")
    (subject,) = load_file(path).subjects("MultiHeadAttention")
    return check_subject(subject, Request())


def test_a_branch_that_no_experiment_takes_is_named(tmp_path):
    verdict = verdict_on(LAYER, tmp_path)
    assert (verdict.status, verdict.not_checked) == ("right", ["lines 16–17 never ran"])


def test_a_layer_whose_lines_all_run_has_nothing_to_name(tmp_path):
    assert verdict_on(LAYER.replace("> 5000", "> 1"), tmp_path).status == "wrong"
    whole = LAYER.replace("context * 0", "context * 1").replace("context + 1", "context + 0").replace("> 5000", "> 1")
    assert verdict_on(whole, tmp_path).not_checked == []


def test_refusals_prints_docstrings_and_functions_that_never_ran_are_not_named():
    source = textwrap.dedent('''\
        def f(x):
            """Add one."""
            if x < 0:
                raise ValueError(x)
            elif x > 9:
                print(x)
                pass
            def inside():
                return 1
            return x + 1
        def g():
            return 2
        ''')
    assert lines_not_run(source, {3, 5, 10}) == ""


def test_a_statement_over_several_lines_has_run_if_one_of_them_has():
    begin = "def f(a):\n    b = (\n        a\n    )\n"
    source = begin + "    try:\n        c = 1\n    except ValueError:\n        c = 2\n    return b\n"
    assert lines_not_run(source, {3, 6, 9}) == "line 8 never ran"
    assert lines_not_run(source, {9}) == "lines 2, 6, 8 never ran"


def test_text_that_is_no_python_names_nothing():
    assert lines_not_run("def (", {1}) == ""


def test_a_tracer_that_is_there_already_stays():
    def tracer(frame, event, value):
        return None

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        with Lines(__file__):
            during = sys.gettrace()
        assert during is sys.gettrace() is tracer
    finally:
        sys.settrace(before)
