"""Every class of the zoo, watched: exact, marked or refused as docs/watch.md says, and never wrong.

The quick part runs with all tests; `make zoo` runs the rest.
"""

import pytest

from heads.zoo import classes
from heads.zoo.hybrids import HYBRIDS
from heads.zoo.measure import examine, roles
from heads.zoo.table import verdicts_in_docs
from heads.zoo.towers import TOWERS

QUICK = (
    *(
        "gpt2",
        "llama",
        "gpt_oss",
        "bert",
        "t5",
        "longt5",
        "big_bird",
        "longformer with global attention",
        "vit",
        "swin",
    ),
    *("hiera", "sam_vision_model", "segformer", "clip", "perceiver", "squeezebert"),
    *("clip of equal lengths", "lxmert of equal lengths", "deepseek_v4"),
)
ANIMALS = (*classes.ANIMALS, *TOWERS, *HYBRIDS)
CASES = [
    pytest.param(
        animal,
        implementation,
        padding,
        id=f"{animal.name} {implementation}{' padded' * padding}",
        marks=() if animal.name in QUICK else pytest.mark.zoo,
    )
    for animal in ANIMALS
    for implementation in ("eager", "sdpa")
    for padding in ((False, True) if animal.can_pad else (False,))
]
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("quiet_transformers")]


@pytest.fixture
def quiet_transformers():
    from transformers import logging

    before = logging.get_verbosity()
    logging.set_verbosity_error()
    yield
    logging.set_verbosity(before)


@pytest.mark.parametrize(("animal", "implementation", "padding"), CASES)
def test_a_class_of_the_zoo(animal, implementation, padding):
    if not animal.has(implementation):
        pytest.skip(f"transformers has no {implementation} for {animal.name}")
    result = examine(animal, implementation, padding)
    assert result.wrong == []
    order = ("exact", "marked", "refused")
    assert order.index(result.verdict) <= order.index(verdicts_in_docs()[animal.name])


@pytest.mark.parametrize(
    "animal",
    [
        pytest.param(a, id=a.name, marks=() if a.name in ("llama", "bert", "gemma3_text") else pytest.mark.zoo)
        for a in ANIMALS
    ],
)
def test_roles_are_the_same_by_sdpa_and_by_eager_code(animal):
    if not animal.has("sdpa"):
        pytest.skip(f"transformers has no sdpa for {animal.name}")
    assert roles(animal, "sdpa") == roles(animal, "eager")


def test_the_table_in_the_docs_has_every_class():
    assert set(verdicts_in_docs()) == {animal.name for animal in ANIMALS}
    assert len(ANIMALS) >= 60
