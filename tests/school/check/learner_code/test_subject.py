import torch
from torch import nn

from regard.school.check.learner_code.subject import InsideSubject, LocalSubject
from school.check.learner import Learner

BUILD = {"d_in": 13, "d_out": 21, "context_length": 11, "dropout": 0.0, "num_heads": 3}


def test_a_local_subject_runs_on_one_thread_and_leaves_seed_and_threads_as_they_were():
    threads = []

    class Counts(nn.Module):
        def forward(self, x):
            threads.append(torch.get_num_threads())
            return x

    torch.set_num_threads(2)
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    LocalSubject(Counts).run({"build": {}, "calls": [{"args": ["x"]}]}, {"x": torch.ones(2)})
    assert threads == [1]
    assert torch.get_num_threads() == 2
    assert torch.random.get_rng_state().equal(before)


def test_it_knows_the_text_of_its_file():
    subject = LocalSubject(Learner)
    assert "class Learner(nn.Module)" in subject.source
    assert subject.file.endswith("learner.py")
    assert not subject.is_built


def test_an_observation_has_the_first_failure():
    observation = LocalSubject(Learner).run({"build": {**BUILD, "num_heads": 0}}, {})
    assert observation.failure.type == "ZeroDivisionError"


def test_a_module_inside_is_run_by_its_path():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.attn = Learner(**BUILD)

    whole = LocalSubject(Block)
    inside = whole.run({"build": {}}, {}).contents["inside"]
    subject = InsideSubject(whole, next(one for one in inside if one["path"] == "attn"))
    seen = subject.run({"build": {}, "calls": [{"args": ["x"]}]}, {"x": torch.ones(2, 5, 13)})
    assert seen.runs[0].outputs[0].shape == (2, 5, 21)
    assert subject.described["name"] == "Learner"
