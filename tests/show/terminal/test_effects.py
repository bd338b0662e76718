"""Effects as a table."""

from heads.measured import measured
from regard.heads.change.effects import Effects
from regard.support.drawing import as_text


def test_the_table_lists_the_largest_cost_first_and_where_it_is():
    assert Effects(measured()).table().splitlines() == [
        "  2 layers × 2–3 heads · 3 tokens · loss per token 2.50",
        "",
        "  head     role             loss  costs most",
        "  1.0      induction       +2.00  cat +3.0",
        "  0.1      previous token  +0.50  sat +0.8",
        "  0.1+1.2                   0.00  cat +1.0",
        "  layer 1                  −1.00  sat −0.5",
        "",
        "  loss        by how much the loss per token grows with the cut, in nats",
        "  costs most  the token whose loss grows most",
    ]


def test_noise_and_chosen_tokens_have_columns_and_noisy_effects_a_mark():
    lines = Effects(measured(texts=2, chosen=[2])).table().splitlines()
    assert lines[0] == "  2 layers × 2–3 heads · 2 texts × 3 tokens · loss per token 2.50"
    assert lines[2] == "  head     role            log p   loss  noise   costs most"
    assert lines[3] == "  1.0      induction       −1.50  +3.00  ± 0.50  cat +6.0 in text 1"
    assert any(line.startswith("  noise ") for line in lines)
    noisy = Effects(measured(texts=2)).table().splitlines()
    assert [line for line in noisy if "≈ 0 " in line and "0.1+1.2" in line]
    assert all(len(line) <= 80 for line in lines + noisy)
    assert not any("…" in line for line in lines + noisy)


def test_what_is_left_out_is_counted():
    assert "  … and 2 more, loss −1.00 to 0.00: --all" in as_text(Effects(measured()), 80, few=2, more="--all")


def test_html_has_the_same_rows():
    html = Effects(measured())._repr_html_()
    assert "<td>1.0</td><td>induction</td><td>+2.00</td><td>cat +3.0</td>" in html
