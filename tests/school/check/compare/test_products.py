import torch

from regard.school.check.compare.products import calls_before, contexts, products, run_heads, scores_of
from regard.school.check.learner_code.subject import LocalSubject

B, H, T, D = 29, 3, 5, 7


def recorded(function, *tensors):
    names = [f"t{i}" for i in range(len(tensors))]
    subject = LocalSubject(function)
    return subject.run({"record": True, "calls": [{"args": names}]}, dict(zip(names, tensors, strict=True)))


def qkv():
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(B, H, T, D, dtype=torch.float64, generator=generator) for _ in range(3)]


def by_matrices(q, k, v):
    return torch.softmax(q @ k.transpose(-2, -1) / D**0.5, -1) @ v


def by_letters(q, k, v):
    weights = torch.einsum("...td,...sd->...ts", q, k).div(D**0.5).softmax(-1)
    return torch.einsum("bhts,bhsd->bthd", weights, v)


def joined_batch(q, k, v):
    q, k, v = (t.flatten(0, 1) for t in (q, k, v))
    return torch.bmm(torch.softmax(torch.bmm(q, k.transpose(1, 2)) / D**0.5, -1), v)


def fused(q, k, v):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v)


def over_the_queries(q, k, v):
    return torch.softmax(q @ k.transpose(-2, -1), -2) @ v


def found_heads(function):
    seen = recorded(function, *qkv())
    found = list(products(seen))
    return [
        head
        for context in contexts(found, B)
        for compared in scores_of(context, found, seen)
        for head in run_heads(context, compared, B, T)
    ]


def is_one_of(t, options):
    return any(torch.equal(t, one) for one in options)


def test_queries_keys_values_and_weights_are_found_however_the_products_are_written():
    q, k, v = qkv()
    weights = torch.softmax(q @ k.mT / D**0.5, -1)
    for function in (by_matrices, by_letters, joined_batch, fused):
        heads = found_heads(function)
        fitting = [head for head in heads if torch.equal(head.q, q) and torch.equal(head.k, k)]
        assert fitting, function.__name__
        torch.testing.assert_close(fitting[0].v, v)
        torch.testing.assert_close(fitting[0].weights, weights)
        torch.testing.assert_close(fitting[0].context, weights @ v)
        torch.testing.assert_close(fitting[0].raw, q @ k.mT)


def test_weights_that_sum_to_1_over_another_axis_than_the_keys_mix_no_values():
    assert found_heads(over_the_queries) == []


def test_a_table_of_0_and_1_is_not_taken_for_weights():
    def causal_mean(q, k, v):
        return torch.eye(T, dtype=q.dtype).expand(B, H, T, T).clone() @ v

    assert found_heads(causal_mean) == []


def test_shared_key_heads_are_the_same_for_every_query_head():
    def shared(q, k, v):
        return torch.softmax(q @ k[:, :1].transpose(-2, -1), -1) @ v[:, :1]

    _, k, v = qkv()
    head = found_heads(shared)[0]
    torch.testing.assert_close(head.k, k[:, :1].expand(-1, H, -1, -1))
    torch.testing.assert_close(head.v, v[:, :1].expand(-1, H, -1, -1))


def test_ancestors_are_all_calls_that_a_call_depends_on():
    seen = recorded(by_matrices, *qkv())
    last = max(i for i, call in enumerate(seen.recorded) if call.name == "matmul")
    names = {seen.recorded[i].name for i in calls_before(seen.recorded, last)}
    assert {"argument", "transpose", "matmul", "softmax"} <= names
