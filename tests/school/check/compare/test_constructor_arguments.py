import pytest

from regard.school.check.compare.constructor_arguments import (
    PROBES,
    ProbeSizes,
    Setting,
    choose_arguments,
    fit_sizes,
    has_config,
    shares_key_heads,
    takes,
)
from regard.school.check.learner_code.driver import describe_class
from school.check.learner import Learner


def described(*names, **defaults):
    kinds = {"kind": "POSITIONAL_OR_KEYWORD"}
    parameters = [{"name": n, "required": True, "default": None, **kinds} for n in names]
    parameters += [{"name": n, "required": False, "default": v, **kinds} for n, v in defaults.items()]
    return {"name": "Layer", "build": parameters, "call": []}


def test_sizes_are_given_by_the_names_that_people_use():
    built = choose_arguments(describe_class(Learner), PROBES[0], dropout=0.5)
    assert built.arguments == {"d_in": 13, "d_out": 21, "context_length": 11, "dropout": 0.5, "num_heads": 3}
    assert built.unknown == ()


def test_a_layer_with_one_width_is_square():
    assert choose_arguments(described("embed_dim", "n_heads"), PROBES[0]).arguments == {"embed_dim": 21, "n_heads": 3}


def test_a_configuration_has_every_name():
    assert has_config(described("config"))
    config = choose_arguments(described("config"), PROBES[0]).arguments["config"]
    assert (config["n_embd"], config["n_head"], config["block_size"]) == (21, 3, 11)


def test_the_learners_own_values_come_first():
    built = choose_arguments(described("d_model", "num_heads", "groove"), PROBES[0], own={"groove": 4})
    assert built.arguments["groove"] == 4


def test_an_argument_that_is_unknown_is_named():
    assert choose_arguments(described("d_model", "groove"), PROBES[0]).unknown == ("groove",)


def test_a_value_for_an_argument_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="Layer takes no argument groove; it takes d_model"):
        choose_arguments(described("d_model"), PROBES[0], own={"groove": 4})


def test_options_that_have_a_default_keep_it():
    assert "bias" not in choose_arguments(described("d_model", bias=True), PROBES[0]).arguments
    assert takes(described("d_model"), ("d_model",))


def test_a_configuration_shows_by_what_is_read_that_key_heads_are_shared():
    assert shares_key_heads(described("d_model", "num_heads", "num_kv_heads"), "")
    assert shares_key_heads(described("args"), "self.n_kv_heads = args.n_kv_heads")
    assert shares_key_heads(described("cfg"), "groups = cfg['n_kv_heads']")
    assert not shares_key_heads(described("config"), "self.n_head = config.n_head")
    assert not shares_key_heads(described("d_model", "num_heads"), "x.n_kv_heads")


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("n_cabezas", "num_heads"),
        ("kopf_anzahl", "num_heads"),
        ("toushu", "num_heads"),
        ("numHeads", "num_heads"),
        ("d_cabeca", "head_dim"),
        ("dim_modelo", "d_model"),
        ("weidu", "d_model"),
        ("hiddenSize", "d_model"),
        ("uscita", "d_out"),
        ("max_laenge", "context_length"),
        ("diuqi", "dropout"),
        ("groove", ""),
    ],
)
def test_a_name_says_its_role_in_several_languages_and_cases(name, role):
    assert Setting((name,)).role == role


def test_fields_of_a_configuration_are_those_that_are_read():
    source = "self.w = cfg.model.width; self.h = cfg.model.heads; self.e = cfg.eps"
    built = choose_arguments(described("cfg"), PROBES[0], source=source)
    assert built.arguments["cfg"]["model"] == {"width": 21, "heads": 3}
    assert built.unknown == ("eps",)
    assert choose_arguments(described("cfg"), PROBES[0], source=source, own={"eps": 1}).arguments["cfg"]["eps"] == 1


def test_sizes_follow_the_learners_values_so_that_heads_divide():
    roles = {"dim": "d_model", "heads": "num_heads", "cfg.kv": "num_kv_heads"}
    assert fit_sizes(PROBES[0], {"heads": 4}, roles).width == 28
    assert fit_sizes(PROBES[0], {"dim": 40}, roles).num_heads == 4
    assert fit_sizes(PROBES[0], {"kv": 1}, roles).kv_heads == 1
    assert fit_sizes(PROBES[0], {}, roles) == PROBES[0]


def test_values_that_do_not_divide_say_which_would():
    roles = {"dim": "d_model", "heads": "num_heads"}
    with pytest.raises(ValueError, match=r"dim \(10\) must be divisible by heads \(4\); try dim=8 or 12"):
        fit_sizes(PROBES[0], {"dim": 10, "heads": 4}, roles)


def test_options_of_any_name_may_be_given_where_the_class_takes_them():
    one = described("dim")
    one["build"].append({"name": "options", "kind": "VAR_KEYWORD", "required": False, "default": None})
    assert choose_arguments(one, PROBES[0], own={"heads": 2}).arguments == {"dim": 14, "heads": 2}


def test_tokens_are_laid_out_as_an_image_of_rows_and_columns():
    assert [ProbeSizes(T=T).grid for T in (5, 6, 16)] == [(1, 5), (2, 3), (4, 4)]
