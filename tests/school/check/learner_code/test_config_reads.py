import pytest

from regard.school.check.learner_code.config_reads import config_reads

READ = """
class A:
    def __init__(self, cfg):
        self.settings = cfg
        self.w = cfg.model.width
        self.h = cfg["model"]["heads"]
        self.p = cfg.get("dropout", 0.0)
        self.b = getattr(cfg, "bias", False)
        self.n = getattr(cfg, "layers")
        for name, value in cfg.items():
            print(name, value[0], other.field)

    def forward(self, x):
        return x * self.settings.scale
"""


def test_fields_are_read_by_attribute_by_key_and_through_other_names():
    assert config_reads(READ, "cfg") == {
        "model.width": True,
        "model.heads": True,
        "dropout": False,
        "bias": False,
        "layers": True,
        "scale": True,
    }


def test_a_field_that_is_once_read_without_a_default_is_required():
    assert config_reads("a = c.get('x', 1), c.x", "c") == {"x": True}


@pytest.mark.parametrize("source", ["", "class A(", "x = 1\0"])
def test_what_python_cannot_read_has_no_fields(source):
    assert config_reads(source, "cfg") == {}


def test_what_is_read_of_an_array_is_no_field():
    assert config_reads("y = x @ wq.T, wq.shape[0]", "wq") == {}
