"""Build the kernels of triton_statistics for a Hopper GPU, with or without one, and print their sizes."""

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from regard.heads.measure.kernels import launch
from regard.heads.measure.kernels.kernel_mask import KernelMask
from regard.heads.measure.registry import TARGETS


class Pretended:
    """A driver that says there is a Hopper GPU, and can do nothing with it."""

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0

    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)


def built():
    """Run what would launch kernels, and build them instead: {name: PTX}."""
    found = {}

    class Built:
        def __init__(self, kernel):
            self.kernel = kernel

        def __getitem__(self, grid):
            def build(*args, **kwargs):
                name = self.kernel.fn.__name__
                found.setdefault(name, []).append(self.kernel.warmup(*args, grid=grid, **kwargs).asm["ptx"])

            return build

    for name in ("log_sums", "one_sweep", "pick"):
        setattr(launch, name, Built(getattr(launch, name)))
    B, H, T, S, D = 2, 4, 96, 100, 64
    q, k = torch.zeros(B, H, T, D, dtype=torch.bfloat16), torch.zeros(B, 2, S, D, dtype=torch.bfloat16)
    everything = KernelMask(
        shift=4, causal=True, window=17, keys=torch.ones(B, S, dtype=torch.bool),
        dense=torch.ones(B, 1, T, S, dtype=torch.bool), bias=torch.zeros(1, H, T, S), slopes=torch.zeros(H),
    )  # fmt: skip
    real = torch.ones(B, T, dtype=torch.bool)
    first, earlier = torch.zeros(B, dtype=torch.int32), torch.zeros(B, T, dtype=torch.int32)
    targets = list(TARGETS.values())
    for mask, options in (
        (KernelMask(shift=4, causal=True), (None, None, None)),
        (everything, (real, first, earlier)),
    ):
        lse, received = torch.zeros(B, H, T), torch.zeros(B, H, S, dtype=torch.int64)
        launch.logsumexp(q, k, 0.125, mask)
        launch.one_pass(
            q, k, 0.125, mask, lse, *options, received, targets if options[2] is not None else targets[:3]
        )  # fmt: skip
    return found


if __name__ == "__main__":
    driver.set_active(Pretended())
    for name, programs in built().items():
        print(name, *(len(ptx) for ptx in programs))
