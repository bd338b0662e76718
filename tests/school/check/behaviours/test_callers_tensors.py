from school.check.learner import checked, edited


def test_a_layer_that_changes_its_input_is_named_with_the_line(tmp_path):
    source = edited("loop", "torch.softmax(s, dim=-1)", "torch.softmax(s, dim=-1)")
    assert checked(source, tmp_path).is_right
    line = next(one for one in source.splitlines() if "def forward" in one)
    wrong = source.replace(line, f"{line}\n        x.mul_(2)\n        x = x / 2")
    (finding,) = checked(wrong, tmp_path).mistakes
    assert finding.name == "in-place change of the caller's input"
    assert finding.code == "x.mul_(2)"
