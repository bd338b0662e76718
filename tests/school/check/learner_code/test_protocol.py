import pytest
import torch

from regard.school.check.learner_code import driver
from regard.school.check.learner_code.protocol import MOST_NUMBERS, check_report
from school.check.learner import Learner

BUILD = {"d_in": 13, "d_out": 21, "context_length": 11, "dropout": 0.0, "num_heads": 3}
X = torch.randn(2, 5, 13, dtype=torch.float64)
JOB = {"build": BUILD, "calls": [{"args": ["x"]}], "record": True, "devices": False}


@pytest.fixture
def observed():
    return driver.run(Learner, JOB, {"x": X})


def test_what_the_driver_writes_passes(observed):
    check_report(*observed, JOB)
    for changes in ({"gradients": True}, {"devices": True}, {"train": True, "dropout": 0.5}, {"calls": []}):
        job = {**JOB, **changes}
        check_report(*driver.run(Learner, job, {"x": X}), job)
    failing = {**JOB, "build": {"d_in": 13}}
    check_report(*driver.run(Learner, failing, {}), failing)


def test_a_layer_that_keeps_infinity_as_an_attribute_passes(observed):
    seen, tensors = observed
    seen["attributes"]["hidden"] = float("-inf")
    check_report(seen, tensors, JOB)


PARAMETER = {"name": "a", "shape": [3], "is_mask": False, "owner": "", "spread": 0.5}
FAILURE = {"type": "E", "message": "m", "line": 3, "function": ""}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"calls": 7}, "its calls are not what a driver writes"),
        ({"calls": []}, "it tells of 0 calls; 1 were asked for"),
        ({"calls": [{"outputs": [], "after": {}}]}, "it does not tell what became of the arguments"),
        ({"calls": [{"outputs": ["y"], "after": {"x": "after.0.0"}}]}, "y is missing"),
        ({"calls": [{"outputs": [], "after": {"x": "y"}}]}, "y is missing"),
        ({"failed": FAILURE | {"line": "\x1b[31m"}}, "its failed are not what a driver writes"),
        ({"failed": FAILURE | {"line": float("nan")}}, "its failed are not what a driver writes"),
        ({"failed": FAILURE | {"line": 10**400}}, "its failed are not what a driver writes"),
        ({"failed": FAILURE | {"more": 1}}, "its failed are not what a driver writes"),
        ({"failed": FAILURE | {"message": "x" * 5000}}, "its failed are not what a driver writes"),
        ({"recorded": [{"name": 7, "line": 3, "inputs": []}]}, "its recorded are not what a driver writes"),
        ({"recorded": [{"name": "mm", "line": 3, "inputs": [-1]}]}, "its recorded are not what a driver writes"),
        ({"built": 10**9}, "more calls were recorded in the constructor than in all"),
        ({"built": -1}, "more calls were recorded in the constructor than in all"),
        ({"parameters": [PARAMETER | {"shape": [-3]}]}, "its parameters are not what a driver writes"),
        ({"parameters": [PARAMETER | {"name": "\n"}]}, "its parameters are not what a driver writes"),
        ({"parameters": [PARAMETER] * 2}, "two of its parameters have"),
        ({"parameters": [PARAMETER | {"shape": [1 << 13, 1 << 12]}]}, f"at most {MOST_NUMBERS}"),
        ({"attributes": {"num_heads": 1 << 63}}, "its attributes are not what a driver writes"),
        ({"inside": [{"path": "a", "name": "b", "build": [], "call": []}] * 201}, "its inside are not what"),
        ({"elsewhere": {"name": 7, "line": 3}}, "its elsewhere are not what a driver writes"),
    ],
)  # fmt: skip
def test_what_no_driver_writes_is_refused(observed, changes, why):
    seen, tensors = observed
    if changes.get("parameters", [{}])[0].get("shape") == [1 << 13, 1 << 12]:
        changes = {
            "parameters": changes["parameters"]
            + [{"name": "b", "shape": [1], "is_mask": False, "owner": "", "spread": 0.5}]
        }
    with pytest.raises(ValueError, match=why):
        check_report({**seen, **changes}, tensors, JOB)


@pytest.mark.parametrize("seen", [None, 7, [], {}, {"calls": []}])
def test_what_is_no_report_is_refused(seen):
    with pytest.raises(ValueError, match=r"it is no dict|it has no (calls|recorded)"):
        check_report(seen, {}, JOB)
