"""Two tasks with one model, forwards that fail and are caught, and tensors that hold no numbers."""

import asyncio
import threading

import pytest
import torch
from torch import nn
from torch._subclasses import FakeTensorMode

import regard
from helpers import Textbook
from regard.attention.masks import EVERYTHING

E, H = 12, 3


class ByHand(nn.Module):
    """Attention that writes its weights out."""

    def __init__(self):
        super().__init__()
        self.num_heads, self.q, self.k, self.v = H, *(nn.Linear(E, E) for _ in range(3))

    def forward(self, x):
        q, k, v = (layer(x).unflatten(-1, (H, -1)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        return x + ((q @ k.mT).softmax(-1) @ v).transpose(1, 2).flatten(2)


class Projected(ByHand):
    """The same with a projection of its output."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(E, E)

    def forward(self, x):
        return self.out(super().forward(x))


class Fused(ByHand):
    """The same by SDPA."""

    def forward(self, x):
        q, k, v = (layer(x).unflatten(-1, (H, -1)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        return x + nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


class Model(nn.Module):
    """Three layers; `fail` is raised before the last one."""

    def __init__(self, kind):
        super().__init__()
        self.layers = nn.ModuleList([kind(), kind(), kind()])

    def forward(self, x, fail=None):
        x = self.layers[1](self.layers[0](x))
        if fail is not None:
            raise fail
        return self.layers[2](x)


def lengths(seen):
    return [forward[0].record.sizes[2] for forward in seen.forwards]


async def watch_and_wait(model, T, times):
    with regard.watch(model) as seen:
        for _ in range(times):
            model(torch.randn(1, T, E))
            await asyncio.sleep(0)
    return lengths(seen)


def test_each_task_sees_its_own_calls():
    model = Model(ByHand)

    async def both():
        return await asyncio.gather(watch_and_wait(model, 5, 3), watch_and_wait(model, 7, 2))

    assert asyncio.run(both()) == [[5] * 3, [7] * 2]


def test_tasks_that_start_inside_a_block_see_their_own_calls_and_the_block_sees_all():
    model = Model(Fused)

    async def both():
        with regard.watch(model) as outer:
            inner = await asyncio.gather(watch_and_wait(model, 5, 2), watch_and_wait(model, 7, 2))
            model(torch.randn(1, 3, E))
        return inner, lengths(outer)

    assert asyncio.run(both()) == ([[5] * 2, [7] * 2], [5, 7, 5, 7, 3])


def test_a_cut_of_one_task_leaves_the_others_alone():
    model, x = Model(ByHand), torch.randn(1, 7, E)
    whole = model(x)
    with regard.cut(model, heads=[(0, 1)]):
        cut = model(x)

    async def cutting():
        with regard.cut(model, heads=[(0, 1)]):
            await asyncio.sleep(0)
            return model(x)

    async def plain():
        await asyncio.sleep(0)
        return model(x)

    async def both():
        with regard.watch(model):
            return await asyncio.gather(cutting(), plain())

    one, other = asyncio.run(both())
    assert torch.equal(one, cut)
    assert torch.equal(other, whole)
    assert not torch.equal(cut, whole)


def test_a_block_that_ends_before_one_inside_it_sees_no_more():
    model = Model(Fused)
    first, second = regard.watch(model), regard.watch(model)
    outer = first.__enter__()
    inner = second.__enter__()
    model(torch.randn(1, 5, E))
    first.__exit__(None, None, None)
    model(torch.randn(1, 7, E))
    second.__exit__(None, None, None)
    assert (lengths(outer), lengths(inner)) == ([5], [5, 7])


def test_a_block_that_opens_while_the_model_runs_sees_the_rest():
    model = Model(ByHand)
    inside = regard.watch(model.layers[2])
    hook = model.layers[1].register_forward_hook(lambda *_: setattr(model, "seen", inside.__enter__()))
    with regard.watch(model) as seen:
        model(torch.randn(1, 5, E))
        inside.__exit__(None, None, None)
    hook.remove()
    assert [layer.name for layer in seen] == ["layers.0", "layers.1", "layers.2"]
    assert len(model.seen) == 1


@pytest.mark.parametrize("kind", [ByHand, Fused, lambda: Textbook(E, E, 16, 0.0, H)])
@pytest.mark.parametrize("keep", [None, False])
@pytest.mark.parametrize("error", [RuntimeError("no"), KeyboardInterrupt()], ids=["error", "interrupt"])
def test_a_forward_that_failed_is_not_reported(kind, keep, error):
    model = Model(kind)
    texts = [torch.randn(1, T, E) for T in (3, 5, 7)]
    with regard.watch(model, keep=keep) as expected:
        model(texts[0])
        model(texts[2])
    with regard.watch(model, keep=keep) as seen:
        model(texts[0])
        with pytest.raises(type(error)):
            model(texts[1], fail=error)
        model(texts[2])
    assert lengths(seen) == lengths(expected) == [3, 7]
    for one, other in zip(seen.forwards, expected.forwards, strict=True):
        for layer, right in zip(one, other, strict=True):
            assert layer.name == right.name
            torch.testing.assert_close(layer.entropy, right.entropy)


def test_a_hook_that_fails_fails_the_forward():
    model = Model(ByHand)

    def fail(*_):
        raise RuntimeError("no")

    with regard.watch(model) as seen:
        model(torch.randn(1, 3, E))
        hook = model.layers[2].register_forward_hook(fail)
        with pytest.raises(RuntimeError, match="no"):
            model(torch.randn(1, 5, E))
        hook.remove()
    assert lengths(seen) == [3]


def test_a_part_that_fails_inside_a_forward_and_is_run_again_is_reported_once():
    class Careful(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.model = Fused(), Model(Fused)

        def forward(self, x):
            x = self.first(x)
            try:
                return self.model(x, fail=RuntimeError("too large"))
            except RuntimeError:
                return self.model(x)

    model, x = Careful(), torch.randn(1, 5, E)
    with regard.watch(model) as seen:
        model(x)
    assert [layer.name for layer in seen] == ["first", *(f"model.layers.{i}" for i in range(3))]
    whole = model(x)
    with regard.cut(model, heads=[(3, 1)]):  # numbered as in the report
        cut = model(x)
    assert not torch.equal(whole, cut)


def test_where_every_forward_failed_there_is_nothing_to_report():
    model = Model(ByHand)
    whenever = pytest.raises(ValueError, match="raised an error whenever it was called inside the block")
    with whenever, regard.watch(model), pytest.raises(RuntimeError, match="no"):
        model(torch.randn(1, 5, E), fail=RuntimeError("no"))


def test_threads_see_their_own_calls():
    model, seen = Model(ByHand), {}
    barrier = threading.Barrier(2)

    def run(T):
        with regard.watch(model) as report:
            for _ in range(3):
                barrier.wait()
                model(torch.randn(1, T, E))
        seen[T] = lengths(report)

    threads = [threading.Thread(target=run, args=(T,)) for T in (5, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {5: [5] * 3, 7: [7] * 3}


@pytest.mark.parametrize("kind", [ByHand, Fused, lambda: Textbook(E, E, 16, 0.0, H)])
def test_a_model_on_the_meta_device_runs_and_is_refused(kind):
    with torch.device("meta"):
        model, x = Model(kind), torch.randn(1, 5, E)
    said = pytest.warns(UserWarning, match=r"layers.0.* is not reported: its tensors hold no numbers: .*meta device")
    with said, regard.watch(model) as seen:
        out = model(x)
    assert out.is_meta
    assert out.shape == (1, 5, E)
    assert len(seen) == 0


@pytest.mark.parametrize("kind", [ByHand, Projected, Fused])
def test_a_model_of_fake_tensors_runs_and_is_refused(kind):
    with FakeTensorMode():
        model, x = Model(kind), torch.randn(1, 5, E)
        with pytest.warns(UserWarning, match="its tensors hold no numbers"), regard.watch(model):
            out = model(x)
    assert out.shape == (1, 5, E)


def test_a_fused_layer_of_torch_on_the_meta_device_runs_and_is_refused():
    with torch.device("meta"):
        model, x = nn.TransformerEncoderLayer(E, H, 13, batch_first=True).eval(), torch.randn(1, 5, E)
    said = pytest.warns(UserWarning, match="self_attn is not reported: its tensors hold no numbers")
    with torch.no_grad(), said, regard.watch(model):
        out = model(x)
    assert out.shape == (1, 5, E)


def test_a_model_in_inference_mode_is_read_as_any_other():
    model, x = Model(ByHand), torch.randn(1, 5, E)
    with torch.inference_mode(), regard.watch(model) as seen:
        model(x)
    assert seen[0].record.steps[0].call.attention.mask is EVERYTHING
    with torch.no_grad(), regard.watch(model) as expected:
        model(x)
    torch.testing.assert_close(seen[2].weights(), expected[2].weights())
