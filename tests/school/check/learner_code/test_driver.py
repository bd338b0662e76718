import re
import types

import torch
from torch import nn

from regard.school.check.learner_code import driver
from regard.school.check.learner_code.protocol import read_report
from regard.school.check.learner_code.submission import DRIVER
from school.check.learner import Learner

BUILD = {"d_in": 13, "d_out": 21, "context_length": 11, "dropout": 0.0, "num_heads": 3}
X = torch.randn(2, 5, 13, dtype=torch.float64)
CALL = {"args": ["x"]}


def run(target=Learner, tensors=None, **job):
    return driver.run(target, {"build": BUILD, "calls": [CALL], **job}, {"x": X, **(tensors or {})})


def test_what_is_sent_along_imports_nothing_of_regard():
    assert "import regard" not in DRIVER
    assert "from regard" not in DRIVER
    exec(compile(DRIVER, "<driver>", "exec"), {"__name__": "driver"})


def test_known_weights_are_put_in_and_the_output_comes_back():
    seen, tensors = run(
        state=True, tensors={"state.out_proj.weight": torch.zeros(21, 21), "state.out_proj.bias": torch.ones(21)}
    )
    assert seen["calls"][0]["outputs"] == ["out.0.0"]
    assert tensors["out.0.0"].equal(torch.ones(2, 5, 21, dtype=torch.float64))


def test_it_describes_what_a_layer_holds():
    seen, _ = run()
    assert [p["name"] for p in seen["parameters"]][-2:] == ["out_proj.weight", "out_proj.bias"]
    assert seen["buffers"] == [{"name": "mask", "shape": [11, 11], "is_mask": True}]
    assert seen["attributes"]["num_heads"] == 3
    assert seen["loose"] == []


def test_an_exception_is_data_with_the_learners_line():
    seen, _ = run(tensors={"x": X[..., :12]})
    failed = seen["calls"][0]["failed"]
    assert failed["type"] == "RuntimeError"
    assert failed["function"] in ("<genexpr>", "forward")
    assert failed["line"] > 20


def test_a_changed_argument_is_told():
    class Changes(nn.Module):
        def forward(self, x):
            x += 1
            return x

    seen, returned = run(Changes, build={})
    assert seen["calls"][0]["after"] == {"x": "after.0.0"}
    torch.testing.assert_close(returned["after.0.0"], X + 1)
    assert read_report(seen, returned, {"x": X}).runs[0].changed == ("x",)


def test_gradients_come_back_and_where_there_is_none_is_told():
    class Extra(Learner):
        def __init__(self, **sizes):
            super().__init__(**sizes)
            self.extra = nn.Linear(3, 2)
            self.W_key.weight.requires_grad_(False)

    cotangent = torch.ones(2, 5, 21, dtype=torch.float64)
    seen, tensors = run(Extra, gradients=True, tensors={"cotangent": cotangent})
    assert seen["without_gradient"] == ["state.extra.weight", "state.extra.bias"]
    assert "state.W_key.weight" not in seen["gradients"]
    assert tensors["gradient.x"].shape == X.shape
    assert tensors["gradient.state.out_proj.bias"].equal(torch.full((21,), 10.0, dtype=torch.float64))


def test_a_call_of_a_new_instance_forgets_the_calls_before_it_and_may_have_other_weights():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls, self.weight = 0, nn.Parameter(torch.ones(1))

        def forward(self, x):
            self.calls += 1
            return x * 0 + self.calls * self.weight

    calls = [CALL, CALL, {**CALL, "fresh": True}, {**CALL, "fresh": True, "state": {"weight": "seven"}}]
    sent = {"state.weight": torch.ones(1), "seven": torch.full((1,), 7.0)}
    _, tensors = run(Counter, build={}, calls=calls, state=True, tensors=sent)
    assert [float(tensors[f"out.{i}.0"].max()) for i in range(4)] == [1, 2, 1, 7]


def test_a_list_is_the_same_for_all_calls():
    class Keeps(nn.Module):
        def forward(self, x, kept):
            kept.append(x)
            return torch.cat(kept, dim=1)

    _, tensors = run(Keeps, build={}, calls=[{"args": ["x", {"list": "kept"}]}] * 2)
    assert tensors["out.1.0"].equal(torch.cat([X, X], dim=1))


def test_a_file_is_described_by_its_classes_and_functions():
    module = types.ModuleType("homework")
    exec("def attend(q, k, v, mask=None): pass", vars(module))
    described = driver.describe(module)
    assert [p["name"] for p in described["functions"][0]["call"]] == ["q", "k", "v", "mask"]
    assert described["functions"][0]["call"][3]["required"] is False


def test_a_lambda_and_an_alias_have_the_name_of_a_variable():
    module = types.ModuleType("homework")
    exec("double = lambda x: 2 * x\ndef f(): pass\ng = f\ndef h(): pass\nk = h\ndel h", vars(module))
    assert [one["name"] for one in driver.describe(module)["functions"]] == ["double", "f", "k"]


def test_the_files_that_make_the_driver_define_no_name_twice():
    names = re.findall(r"(?m)^(?:def|class) (\w+)|^(\w+)(?:: [^=]+)? = ", DRIVER)
    defined = [one or other for one, other in names]
    assert len(defined) == len(set(defined))
    compile(DRIVER, "driver", "exec")


def test_a_class_that_can_be_called_is_described_whatever_it_is_made_from():
    module = types.ModuleType("homework")
    text = """
class Plain:
    def __init__(self, d): pass
    def forward(self, x, mask=None): pass
class Data:
    size = 3
class Mistake(Exception):
    def forward(self): pass
"""
    exec(text, vars(module))
    (one,) = driver.describe(module)["classes"]
    assert (one["name"], one["is_plain"], [p["name"] for p in one["call"]]) == ("Plain", True, ["x", "mask"])
    assert driver.describe_class(Learner)["is_plain"] is False


def test_skipped_statements_are_told():
    module = types.ModuleType("homework")
    skipped = [{"line": 3, "type": "NameError", "message": "x", "defines": ""}]
    module.__skipped__ = skipped
    assert driver.describe(module) == {"classes": [], "functions": [], "skipped": skipped}


class Turns(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("turns", torch.polar(torch.ones(13), torch.arange(13.0)))

    def forward(self, x):
        return (x * self.turns).imag


def test_a_complex_table_stays_complex():
    _, tensors = run(Turns, build={})
    torch.testing.assert_close(tensors["out.0.0"], X * torch.arange(13.0).sin(), check_dtype=False)
