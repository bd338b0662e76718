"""Models of timm, vit-pytorch and x-transformers at tiny sizes: how a watch describes them, and the truth.

Their softmaxes are recorded in float64, by a function mode of this file. Where a package is not installed, there is
nothing to compare; timm and vit-pytorch are loaded without torchvision, which the files with attention do not need.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

ALONE = ("timm", "vit_pytorch", "torchvision")  # packages that are loaded in part, so that nobody else sees them


@dataclass(frozen=True)
class PackageModel:
    """A model of a package. lost: how many of its softmaxes are not reported, and a warning names their modules.

    axis: that of the heads, in softmaxes with windows, (…, T, S) of five axes.
    """

    package: str
    name: str
    make: Callable[[], nn.Module]
    x: Callable[[], Tensor]
    lost: int = 0
    axis: int = -4
    options: dict[str, Any] = field(default_factory=dict)  # of its forward

    def model(self, fused: bool) -> nn.Module:
        torch.manual_seed(7)
        model = self.make().eval()
        for module in model.modules():
            if hasattr(module, "fused_attn"):
                module.fused_attn = fused
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() > 1:
                    parameter.normal_(0, parameter[0].numel() ** -0.5)
        return model

    @property
    def can_fuse(self) -> bool:
        return any(hasattr(module, "fused_attn") for module in self.make().modules())

    def truth(self) -> list[Tensor]:
        """All of its softmaxes, (B, H, T, S) each, in float64."""
        model, recorder = self.model(fused=False).double(), _Softmaxes()
        x = self.x()
        with torch.no_grad(), recorder:
            model(x.double() if x.is_floating_point() else x, **self.options)
        return [one.movedim(self.axis, -3).flatten(0, -4) if one.dim() == 5 else one for one in recorder.found]


class _Softmaxes(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") == "softmax":
            self.found.append(out.double())
        return out


@contextmanager
def _clean_modules() -> Iterator[None]:
    """Imports of the packages in ALONE that are left behind nowhere."""
    own = [name for name in sys.modules if name.partition(".")[0] in ALONE]
    kept = {name: sys.modules.pop(name) for name in own}
    try:
        yield
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] in ALONE]:
            del sys.modules[name]
        sys.modules.update(kept)


def _bare(name: str, folder: Path | None = None) -> Any:
    """A package without its __init__.py, which imports too much."""
    module = sys.modules[name] = ModuleType(name)
    module.__path__ = [str(folder)] if folder else []
    return module


def _spec(package: str) -> ModuleSpec | None:
    with _clean_modules():  # a part of it may be loaded, by other tests
        return importlib.util.find_spec(package)


def is_installed(package: str) -> bool:
    return _spec(package.replace("-", "_")) is not None


def _folder(package: str) -> Path:
    spec = _spec(package)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


@cache
def of_timm(file: str) -> Any:
    """A file of timm.models."""
    folder = _folder("timm")
    with _clean_modules():
        for name in ("torchvision", "torchvision.ops"):
            _bare(name)
        _bare("torchvision.ops.misc").FrozenBatchNorm2d = nn.BatchNorm2d
        _bare("timm", folder).__version__ = "0"
        data = _bare("timm.data", folder / "data")
        constants = importlib.import_module("timm.data.constants")
        vars(data).update({name: value for name, value in vars(constants).items() if name.isupper()})
        _bare("timm.models", folder / "models")
        importlib.import_module("timm.layers")
        return importlib.import_module(f"timm.models.{file}")


@cache
def of_vit_pytorch(file: str) -> Any:
    """A file of vit_pytorch."""
    folder = _folder("vit_pytorch")
    with _clean_modules():
        _bare("vit_pytorch", folder)
        return importlib.import_module(f"vit_pytorch.{file}")


def _image(size: int) -> Callable[[], Tensor]:
    return lambda: torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(5))


def _ids() -> Tensor:
    return torch.randint(0, 23, (2, 11), generator=torch.Generator().manual_seed(3))


def _timm(file: str, name: str, size: int = 32, lost: int = 0, axis: int = -4, **sizes: Any) -> PackageModel:
    make = lambda: getattr(of_timm(file), name)(num_classes=0, **sizes)  # noqa: E731
    return PackageModel("timm", file, make, _image(size), lost, axis)


def _vit_pytorch(file: str, name: str, size: int = 32, lost: int = 0, **sizes: Any) -> PackageModel:
    make = lambda: getattr(of_vit_pytorch(file), name)(num_classes=5, **sizes)  # noqa: E731
    return PackageModel("vit-pytorch", file, make, _image(size), lost=lost)


def _x_transformers(name: str, lost: int = 0, cross: bool = False, **options: Any) -> PackageModel:
    def make() -> nn.Module:
        from x_transformers import Decoder, TransformerWrapper

        layers = Decoder(dim=32, depth=2, heads=4, attn_dim_head=8, cross_attend=cross, **options)
        return TransformerWrapper(num_tokens=23, max_seq_len=32, attn_layers=layers)

    return PackageModel("x-transformers", name, make, _ids, lost=lost)


VIT = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 4}
PLAIN = {"image_size": 32, "patch_size": 8, "dim": 32, "depth": 2, "heads": 4, "mlp_dim": 32}
STAGES = {"img_size": 32, "patch_size": 2, "embed_dim": 16, "depths": (2, 2), "num_heads": (2, 4), "window_size": 4}
LEVELS = {"embed_dims": (16, 32), "num_heads": (2, 4), "depths": (1, 1)}
PACKAGES = (
    _timm("vision_transformer", "VisionTransformer", **VIT),
    _timm("beit", "Beit", **VIT),
    _timm("eva", "Eva", use_rot_pos_emb=True, **VIT),
    _timm("vision_transformer_relpos", "VisionTransformerRelPos", **VIT),
    _timm("cait", "Cait", lost=2, **VIT),  # talking heads
    _timm("xcit", "Xcit", lost=2, eta=1e-5, **VIT),  # between features
    _timm("convit", "ConVit", lost=4, local_up_to_layer=2, **(VIT | {"depth": 3})),  # the sum of two softmaxes
    _timm("swin_transformer", "SwinTransformer", **STAGES),
    _timm("swin_transformer_v2", "SwinTransformerV2", **STAGES),
    _timm("nest", "Nest", img_size=32, patch_size=4, num_levels=2, **LEVELS),
    _timm("davit", "DaVit", size=64, lost=2, window_size=4, **LEVELS),  # half is between features
    _timm(
        "twins",
        "Twins",
        size=64,
        axis=-3,
        img_size=64,
        sr_ratios=(4, 2),
        wss=(4, 4),
        mlp_ratios=(2, 2),
        **(LEVELS | {"depths": (2, 2)}),
    ),
    _timm(
        "hiera",
        "Hiera",
        size=64,
        img_size=(64, 64),
        embed_dim=16,
        num_heads=2,
        stages=(1, 1, 2, 1),
        mask_unit_size=(8, 8),
        q_pool=3,
    ),
    _timm(
        "hiera",
        "Hiera",
        size=64,
        img_size=(64, 64),
        embed_dim=8,
        num_heads=1,  # in its first stage, as in all of its published sizes
        stages=(1, 1, 2, 1),
        mask_unit_size=(8, 8),
        q_pool=3,
    ),
    _timm("deit", "VisionTransformerDistilled", **VIT),
    _timm("swin_transformer_v2_cr", "SwinTransformerV2Cr", **STAGES),
    _timm("vision_transformer_hybrid", "vit_tiny_r_s16_p8_224", size=224),
    _timm("maxxvit", "maxvit_rmlp_pico_rw_256", size=256),
    _timm("vitamin", "vitamin_small_224", size=224),
    _timm("hieradet_sam2", "sam2_hiera_tiny", size=224),
    _timm("mobilenetv5", "mobilenetv5_base", size=256),
    _timm("metaformer", "caformer_s18", size=224),
    _timm("efficientformer", "efficientformer_l1", size=224),
    _timm("mobilevit", "mobilevit_xxs", size=64),
    _timm("pvt_v2", "pvt_v2_b0", size=64),
    _timm("lowformer", "lowformer_b0", size=64),
    _timm("tiny_vit", "tiny_vit_5m_224", size=224),
    _timm("gcvit", "gcvit_xxtiny", size=224),
    _timm("crossvit", "crossvit_tiny_240", size=240),
    _timm("mvitv2", "mvitv2_tiny", size=224),
    _timm("pit", "pit_ti_224", size=224),
    _timm("volo", "volo_d1_224", size=224, lost=4),  # outlook attention
    _timm("edgenext", "edgenext_xx_small", size=64, lost=3),  # between features
    _timm("efficientformer_v2", "efficientformerv2_s0", size=224, lost=4),  # talking heads
    _timm("byoanet", "lambda_resnet26rpt_256", size=256, lost=3),  # features as queries
    _timm("coat", "coat_lite_tiny", size=224, lost=8),  # features as queries
    _timm("levit", "Levit", size=64, img_size=64, embed_dim=(16, 32), key_dim=8, depth=(1, 1), num_heads=(2, 4)),
    _timm("tnt", "TNT", inner_dim=16, num_heads_inner=2, num_heads_outer=4, **{k: VIT[k] for k in list(VIT)[:4]}),
    _vit_pytorch("vit", "ViT", dim_head=8, **PLAIN),
    _vit_pytorch("simple_vit", "SimpleViT", dim_head=8, **PLAIN),
    _vit_pytorch("parallel_vit", "ViT", num_parallel_branches=2, dim_head=8, **PLAIN),
    _vit_pytorch("vit_for_small_dataset", "ViT", dim_head=8, **PLAIN),
    _vit_pytorch("learnable_memory_vit", "ViT", dim_head=8, **PLAIN),
    _vit_pytorch("deepvit", "DeepViT", lost=2, dim_head=8, **PLAIN),
    _vit_pytorch("cait", "CaiT", lost=3, cls_depth=1, dim_head=8, **PLAIN),
    _vit_pytorch("xcit", "XCiT", lost=2, cls_depth=1, dim_head=8, **PLAIN),
    _vit_pytorch("max_vit", "MaxViT", size=64, dim_conv_stem=16, dim=16, dim_head=8, depth=(1, 1), window_size=4),
    _x_transformers("plain"),
    _x_transformers("alibi", alibi_pos_bias=True),
    _x_transformers("grouped queries", attn_kv_heads=2),
    _x_transformers("top k", attn_sparse_topk=3),
    _x_transformers("memory keys", attn_num_mem_kv=2),
    _x_transformers("talking heads", lost=2, attn_pre_talking_heads=True, attn_post_talking_heads=True),
    _x_transformers("signed weights", lost=2, attn_cog_signed=True),
)
