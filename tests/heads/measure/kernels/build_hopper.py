"""Build the program of hopper_statistics for a Hopper GPU, with or without one, and print it.

build_hopper.py '{"D": 64}'
"""

import json
import sys

import triton
from triton.backends.compiler import GPUTarget
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource

from regard.heads.measure.kernels import hopper_statistics as hopper


def built(D, U, **told):
    def described(rows):
        layout = gl.NVMMASharedLayout.get_default_for([1, 1, rows, D], gl.bfloat16)
        return f"tensordesc<bf16[1,1,{rows},{D}],{layout!r}>"

    known = {"D": D, "BM": 64, "U": U, "R": hopper.RING, "CAUSAL": True, "COLUMNS": True, "REAL": False} | told
    types = dict.fromkeys(("Lse", "Entropy", "Distance", "Largest"), "*fp32") | dict.fromkeys(known, "constexpr")
    types |= {"Real": "*u8", "Key": "*i32", "Received": "*i64", "scale2": "fp32"}
    types |= {"Qd": described(64), "Kd": described(U * 64)}
    names = hopper.one_sweep.arg_names
    source = GluonASTSource(
        fn=hopper.one_sweep,
        signature={name: types.get(name, "i32") for name in names},
        constexprs={(names.index(name),): value for name, value in known.items()},
    )
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})


if __name__ == "__main__":
    print(built(**json.loads(sys.argv[1])).asm["ptx"])
