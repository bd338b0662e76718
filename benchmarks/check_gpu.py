"""Compare every path of attend(), and the layer, on a CUDA GPU with float64 on the CPU. Needs torch, but not pytest.

    PYTHONPATH=src python benchmarks/check_gpu.py

A 16-bit result may be at most twice as far from the reference as PyTorch's own SDPA, plus 1e-3 of its size.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

import regard
from regard.attention.formula import attend_in_steps
from regard.attention.masks import Mask, as_mask
from regard.attention.observers import observe


def cases() -> Iterator[tuple[str, int, int, Mask | None, bool]]:
    """(name, T, S, mask, alibi); T of 192 and 1088 are 64 modulo 128, where masked cuDNN gradients have been NaN."""
    for T in (1, 63, 64, 65, 127, 129, 192, 1088):
        lengths, left = torch.tensor([T, max(1, T // 3)]), torch.arange(T) >= torch.tensor([[0], [T // 2]])
        yield "none", T, T, None, False
        yield "causal", T, T, regard.causal(), False
        yield "lengths", T, T, regard.padding(lengths), False
        yield "causal & lengths", T, T, regard.causal() & regard.padding(lengths), False
        yield "causal & left padding", T, T, regard.causal() & regard.padding(left), False
        yield "window", T, T, regard.causal() & regard.window(17), False
        yield "window, padded", T, T, regard.window(17) & regard.padding(lengths), False
        yield "documents", T, T, regard.causal() & regard.documents(torch.arange(T) // 50), False
        yield "alibi", T, T, regard.causal(), True
        yield "behind a cache", T, T + 37, regard.causal(), False
        yield "nothing seen", T, T, regard.dense(torch.zeros(T, T, dtype=torch.bool)), False


def distance(result: Tensor, expected: Tensor) -> float:
    expected = expected.detach()
    return float((result.detach().double().cpu() - expected).norm() / expected.norm().clamp_min(1e-30))


def gradients(out: Tensor, inputs: list[Tensor], grad: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(out, inputs, grad))


def main() -> int:
    """Print the failures; the exit status is 1 if there are any."""
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}")
    failed, paths = 0, set()
    for D, H, Hkv in ((64, 6, 6), (128, 4, 2), (96, 3, 1), (8, 2, 2)):
        for dtype in (torch.bfloat16, torch.float16, torch.float32):
            for name, T, S, mask, with_alibi in cases():
                if dtype is torch.float16 and (D, T) != (64, 192):
                    continue  # bfloat16 covers all shapes
                torch.manual_seed(T + D)
                q, k, v = (torch.randn(2, h, n, D).to(dtype) for h, n in ((H, T), (Hkv, S), (Hkv, S)))
                grad = torch.randn(2, H, T, D).to(dtype)
                exact = [t.double().requires_grad_() for t in (q, k, v)]
                slopes = regard.alibi_slopes(H) if with_alibi else None
                expected = attend_in_steps(*exact, mask=mask, alibi=slopes)[0]
                expected_all = [expected, *gradients(expected, exact, grad.double())]

                ours = [t.cuda().requires_grad_() for t in (q, k, v)]
                gpu_slopes = None if slopes is None else slopes.cuda()
                with observe(lambda call, route: paths.add(route.name)):
                    out = regard.attend(*ours, mask=mask, alibi=gpu_slopes)
                results = [out, *gradients(out, ours, grad.cuda())]

                shown = as_mask(mask).dense(T, S).expand(2, H, T, S).cuda()
                theirs = [t.cuda().requires_grad_() for t in (q, k, v)]
                bias = None
                if slopes is not None:
                    gap = (torch.arange(T)[:, None] + S - T - torch.arange(S)).abs()
                    bias = (-slopes[:, None, None] * gap).cuda().to(dtype).masked_fill(~shown[0, 0], -torch.inf)[None]
                wide = [t.repeat_interleave(H // t.shape[1], 1) for t in theirs]
                with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
                    peer = F.scaled_dot_product_attention(
                        wide[0], wide[1], wide[2], attn_mask=shown if bias is None else bias
                    )
                peers = [peer, *gradients(peer, theirs, grad.cuda())]

                for what, f, w, p in zip(("out", "dq", "dk", "dv"), results, expected_all, peers, strict=True):
                    slack = 1e-3 if dtype is not torch.float32 else 1e-5
                    limit = 2 * max(distance(p, w), 0) + slack
                    if w.norm() < 1e-12:
                        ok = bool((f.double().abs() < 1e-4).all())  # 0 up to rounding
                    else:
                        ok = bool(f.isfinite().all()) and not distance(f, w) > (limit if limit == limit else slack * 10)
                    if not ok:
                        failed += 1
                        where = f"{name}, D={D} H={H}/{Hkv} T={T} S={S} {dtype}"
                        print(f"FAIL {where}: {what} is {distance(f, w):.2e} off, PyTorch {distance(p, w):.2e}")
    print(f"paths: {', '.join(sorted(paths))}")
    failed += layers()
    print("all good" if not failed else f"{failed} failed")
    return min(failed, 1)


def layers() -> int:
    """Compare the layer on the GPU with float64: moved, compiled, under autocast, and with NaN in padded positions."""
    failed = 0
    for options in ({}, {"num_kv_heads": 2}, {"window": 33}, {"rotary": True, "qk_norm": True}, {"alibi": True}):
        torch.manual_seed(1)
        layer = regard.MultiHeadAttention(96, 96, 512, 0.0, 4, qkv_bias=True, **options)
        x = torch.randn(3, 192, 96)
        reference = regard.MultiHeadAttention(96, 96, 512, 0.0, 4, qkv_bias=True, **options).double()
        reference.load_state_dict(layer.state_dict())
        expected = reference(x.double()).detach()
        layer = layer.cuda()
        results = {"float32": layer(x.cuda())}
        torch._dynamo.reset()
        results["compiled"] = torch.compile(layer, fullgraph=True)(x.cuda())
        with torch.autocast("cuda", dtype=torch.bfloat16):
            results["autocast"] = layer(x.cuda())
        results["bfloat16"] = layer.bfloat16()(x.cuda().bfloat16())
        broken = x.clone()
        broken[:, 150:] = torch.nan
        results["padded"] = layer(broken.cuda().bfloat16(), mask=torch.tensor([150, 150, 150]).cuda())[:, :150]
        for name, result in results.items():
            limit = 2e-2 if name in ("autocast", "bfloat16", "padded") else 2e-3
            target = expected[:, : result.shape[1]]
            if not (result.isfinite().all() and distance(result, target) < limit):
                failed += 1
                print(f"FAIL layer {options} {name}: {distance(result, target):.2e} off")
    return failed


if __name__ == "__main__":
    sys.exit(main())
