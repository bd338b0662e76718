import sys
import types
from pathlib import Path

import torch
from torch import nn

from regard.school.check.learner_code import driver
from regard.school.check.learner_code.protocol import read_report
from school.check.learner import Learner

BUILD = {"d_in": 13, "d_out": 21, "context_length": 11, "dropout": 0.0, "num_heads": 3}
X = torch.randn(2, 5, 13, dtype=torch.float64)
CALL = {"args": ["x"]}


def run(target=Learner, tensors=None, **job):
    return driver.run(target, {"build": BUILD, "calls": [CALL], **job}, {"x": X, **(tensors or {})})


def test_it_imports_nothing_of_regard():
    source = Path(driver.__file__).read_text()
    assert "import regard" not in source
    assert "from regard" not in source


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


def test_recorded_calls_have_lines_and_inputs():
    seen, tensors = run(record=True)
    softmax = next(i for i, call in enumerate(seen["recorded"]) if call["name"] == "softmax")
    line = (
        Path(sys.modules[Learner.__module__].__file__).read_text().splitlines()[seen["recorded"][softmax]["line"] - 1]
    )
    assert "torch.softmax(scores, dim=-1)" in line
    assert seen["recorded"][seen["recorded"][softmax]["inputs"][0]]["name"] == "masked_fill"
    assert tensors[f"recorded.{softmax}"].sum(-1).allclose(torch.ones(2, 3, 5, dtype=torch.float64))


def test_dropout_acts_only_where_it_is_asked_for():
    _, plain = run(train=True, seeds=True, calls=[CALL, CALL])
    assert plain["out.0.0"].equal(plain["out.1.0"])
    seen, dropped = run(train=True, seeds=True, calls=[CALL, CALL], dropout=0.5)
    assert not dropped["out.0.0"].equal(dropped["out.1.0"])
    assert seen["dropped"][0]["p"] == 0.5
    assert dropped["dropped.0"].shape == (2, 3, 5, 5)


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


def test_a_configuration_is_read_by_key_and_by_attribute():
    config = driver.Config({"n_embd": 7})
    assert (config.n_embd, config["n_embd"], config.get("other", 3)) == (7, 7, 3)
    assert not hasattr(config, "other")


def test_a_mask_that_stays_on_the_cpu_is_a_fault_of_devices():
    class Loose(Learner):
        def __init__(self, **sizes):
            super().__init__(**sizes)
            del self.mask
            self.mask = torch.ones(11, 11).triu(1).bool()

    assert run(devices=True)[0]["elsewhere"] is None
    assert run(Loose, devices=True)[0]["elsewhere"]["name"] == "masked_fill"


def test_infinities_become_large_numbers_on_request():
    class Infinite(nn.Module):
        def forward(self, x):
            return x.masked_fill(x > 0, torch.inf)

    _, tensors = run(Infinite, build={}, finite=True)
    assert tensors["out.0.0"].max() == 1e9


def test_parameters_without_gradient_are_told():
    class Extra(Learner):
        def __init__(self, **sizes):
            super().__init__(**sizes)
            self.extra = nn.Linear(3, 2)

    assert run(Extra, gradients=True)[0]["without_gradient"] == ["extra.weight", "extra.bias"]


def test_a_file_is_described_by_its_classes_and_functions():
    module = types.ModuleType("homework")
    exec("def attend(q, k, v, mask=None): pass", vars(module))
    described = driver.describe(module)
    assert [p["name"] for p in described["functions"][0]["call"]] == ["q", "k", "v", "mask"]
    assert described["functions"][0]["call"][3]["required"] is False


def test_a_lambda_has_no_name_and_is_not_described():
    module = types.ModuleType("homework")
    exec("double = lambda x: 2 * x", vars(module))
    assert driver.describe(module)["functions"] == []
