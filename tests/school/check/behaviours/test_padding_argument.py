import torch

from regard.school.check.behaviours.padding_argument import PaddingArgument, masks

KEEP = torch.tensor([[True, True, False], [True, True, True]])


def test_an_argument_is_given_by_name_unless_it_has_a_position():
    assert PaddingArgument("pad").given(KEEP) == ({"pad": KEEP}, {})
    named, placed = PaddingArgument("pad", position=1).given(KEEP)
    assert named == {}
    assert placed[1] is KEEP


def test_real_tokens_are_written_in_both_polarities():
    forms = dict(masks(KEEP))
    assert any(torch.equal(one.squeeze(), KEEP) for one in forms.values() if one.dtype == torch.bool)
    assert any(torch.equal(one.squeeze(), ~KEEP) for one in forms.values() if one.dtype == torch.bool)
