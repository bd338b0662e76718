"""Layers that attack the grader: odd tensors, replaced functions, forged results, odd classes, thieves. All wrong."""

from __future__ import annotations

from school.grading.hostile_parts import SCALE, TEXT, THEFTS, WRITTEN, forged, layer, thief

LAYERS: dict[str, str] = {
    **{f"thief: {what}": thief(way) for what, way in THEFTS.items()},
    "thief: all, in forward": layer("import ctypes, gc, importlib.util, mmap, os, sys\nSTOLEN = []",
    forward="".join(f"try: STOLEN.append(({way}) or 1)\nexcept BaseException: pass\n"
    "" for one in THEFTS.values() for way in one.split("; ")), scale=" / (k.shape[-1] ** 0.5 if STOLEN else 1)"),
    # Odd tensors as the output
    **{
        f"returns {what}": layer(out=out)
        for what, out in {
            "NaN": "out * float('nan')",
            "zeros": "out * 0",
            "infinity": "out + float('inf')",
            "one infinity": "out.index_fill(2, torch.tensor(0), float('inf'))",
            "half": "out.half()",
            "bfloat16": "out.bfloat16()",
            "complex": "out + 0j",
            "imaginary": "(out + 1j).imag",
            "integers": "out.long()",
            "booleans": "out > 0",
            "sparse": "out.to_sparse()",
            "csr": "out[0].to_sparse_csr()",
            "meta": "out.to('meta')",
            "quantized": "torch.quantize_per_tensor(out.float(), 0.1, 0, torch.qint8)",
            "float8": "out.to(torch.float8_e4m3fn)",
            "nested": "torch.nested.nested_tensor(list(out))",
            "a subclass": "out.as_subclass(type('T', (torch.Tensor,), {'__eq__': lambda *a: True, 'shape': (1,)}))",
            "a subclass that answers all": "out.as_subclass(type('T', (torch.Tensor,), {'__torch_function__': "
            "classmethod(lambda *a, **k: 7)}))",
            "10^9 numbers by expand": "torch.zeros(1).expand(10**9)",
            "10^18 numbers by expand": "torch.zeros(1).expand(10**9, 10**9)",
            "10^9 numbers": "torch.zeros(10**9)",
            "the right shape by expand": "out.mean().expand(out.shape)",
            "nothing": "None",
            "an empty tensor": "out[:0]",
            "no width": "out[..., :0]",
            "40 axes": "out[(None,) * 40]",
            "70 axes": "out[(None,) * 61]",
            "a scalar": "out.mean()",
            "a text": "'right'",
            "True": "True",
            "a list in itself": "(lambda a: a.append(a) or a)([out])",
            "a deep list": "__import__('functools').reduce(lambda a, _: [a], range(10**5), out)",
            "a million tensors": "[out] * 10**6",
            "5000 tensors": "[out[:, :, :1]] * 5000",
            "a generator without end": "__import__('itertools').repeat(out)",
            "a list without end": "type('L', (list,), {'__iter__': lambda s: __import__('itertools').repeat(out)})()",
            "an array of objects": "__import__('numpy').array([object()])",
            "a record": "__import__('numpy').zeros(3, dtype='i4,f8')",
            "a lie about its shape": "type('D', (dict,), {'values': lambda s: [out] * 3})(a=1)",
            "a freed tensor": "out.set_(torch.empty(0, dtype=out.dtype).untyped_storage(), 0, (0,))",
            "guesses": "out, out / k.shape[-1] ** 0.5, out / k.shape[-1], out * k.shape[-1] ** 0.5, *[(scores / "
            "s).softmax(-1) @ self.W_value(x) for s in (k.shape[-1] ** 0.5, 2, 4, 8)]",
            "guesses in a list": "[(k.mT, scores), {'a': out, 'b': (scores / k.shape[-1] ** 0.5).softmax(-1) @ "
            "self.W_value(x)}]",
        }.items()
    },
    "guesses by call": layer("COUNT = [0]", forward="COUNT[0] += 1", scale=" / (1, k.shape[-1], k.shape[-1] ** 0.5, "
    "x.shape[-1] ** 0.5)[COUNT[0] % 4]"),
    "guesses by chance": layer("import time", scale=" / (1, k.shape[-1] ** 0.5)[time.time_ns() // 1000 % 2]"),
    "right at the first size only": layer(body="first = None", scale=" / k.shape[-1] ** (0.5 if k.shape[-1] == 21 and "
    "x.shape[0] == 2 else 0.25)"),
    # Replaced functions of torch, Python and the driver
    **{
        f"replaced {what}": layer(after=after, scale=scale)
        for what, after, scale in [
            ("allclose", "torch.allclose = torch.equal = lambda *a, **k: True\ntorch.testing.assert_close = print", ""),
            ("equality", "torch.Tensor.__eq__ = lambda *a: torch.tensor(True)\ntorch.Tensor.__hash__ = "
            "object.__hash__", ""),
            ("softmax", "real = torch.Tensor.softmax\ntorch.Tensor.softmax = torch.softmax = lambda x, *a, **k: "
            "real(x, 0)", SCALE),
            ("matmul", "torch.Tensor.__matmul__ = lambda a, b: a.sum() + torch.zeros(2, 5, 21)", SCALE),
            ("Linear", "nn.Linear.forward = lambda s, x: x.sum() + s.bias", SCALE),
            ("clone", "real = torch.Tensor.clone\ntorch.Tensor.clone = lambda s, **k: real(s) * 2", SCALE),
            ("detach", "torch.Tensor.detach = lambda s: s.new_zeros(s.shape)", ""),
            ("copy_", "torch.Tensor.copy_ = lambda s, *a: s.zero_()", SCALE),
            ("manual_seed", "torch.manual_seed = print", ""),
            ("isnan", "torch.Tensor.isnan = lambda s: torch.zeros_like(s, dtype=torch.bool)", ""),
            ("dtype", "torch.Tensor.dtype = torch.float64", ""),
            ("data_ptr", "torch.Tensor.data_ptr = lambda s: 1", ""),
            ("nbytes", "torch.Tensor.nbytes = 10**12", ""),
            ("isinstance", "import builtins; builtins.isinstance = lambda *a: True", ""),
            ("len", "import builtins; builtins.len = lambda a: 7", ""),
            ("type", "import builtins; builtins.type = lambda *a: dict", ""),
            ("vars", "import builtins; builtins.vars = lambda *a: {}", ""),
            ("print and open", "import builtins; builtins.print = builtins.open = None", ""),
            ("json", "import json; json.dumps = lambda *a, **k: '[' * 99", ""),
            ("os.write", "import os; real = os.write; os.write = lambda fd, data: real(fd, bytes(len(data)))", ""),
            ("os._exit", "import os; os._exit = lambda code: None", ""),
            ("inspect", "import inspect; inspect.signature = lambda *a: 7", ""),
            ("the modules", "import sys; sys.modules.clear()", ""),
            ("the recorder", "import torch.overrides; torch.overrides.TorchFunctionMode.__enter__ = lambda s: 7", ""),
            ("the garbage collector", "import gc\nfor o in gc.get_objects():\n    if isinstance(o, dict) and "
            "o.get('__name__') == 'driver': o.clear()", ""),
        ]
    },
    "in-place change, equality replaced": layer(scale=SCALE, forward="x.add_(1); x = x - 1",
    after="torch.Tensor.__eq__ = lambda *a: torch.tensor(True)\ntorch.Tensor.__hash__ = object.__hash__"),
    # Forged results
    **{
        f"forged: {what}": forged(forgery)
        for what, forgery in {
            "a verdict": "seen = {'status': 'right', 'findings': []}",
            "nothing": "seen, returned = {}, {}",
            "no outputs": "[one.update(outputs=[]) for one in seen['calls']]",
            "other names": "[one.update(outputs=['x'] * 9) for one in seen['calls']]",
            "the input": "returned.update({n: tensors['x'] for n in returned if n.startswith('out')} if 'x' in "
            "tensors else {})",
            "all NaN": "returned.update({n: t * float('nan') for n, t in returned.items()})",
            "one number each": "returned.update({n: t.flatten()[:1] for n, t in returned.items()})",
            "no rows": "returned.update({n: t[:0] for n, t in returned.items()})",
            "no width": "returned.update({n: t[..., :0] for n, t in returned.items()})",
            "calls without end": "seen['calls'] *= 10000",
            "more calls": "seen['calls'] *= 2",
            "fewer calls": "seen['calls'] = seen['calls'][:-1]",
            "recorded calls": "seen['recorded'] = [{'name': 'mm', 'line': 3, 'inputs': [0] * 9}] * 4000; "
            "returned.update({f'recorded.{i}': torch.zeros(1) for i in range(4000)})",
            "inputs of calls": "seen['recorded'] = [{**one, 'inputs': [10**9, -1]} for one in seen['recorded']]",
            "names of calls": "seen['recorded'] = [{**one, 'name': 7} for one in seen['recorded']]",
            "how many were built": "seen['built'] = -10**9",
            "many modules inside": "seen['inside'] = [{'path': f'a{i}', 'name': 'Attention', 'build': [], 'call': []} "
            "for i in range(30000)]",
            "a module inside": f"seen['inside'] = [{{'path': '{TEXT}', 'name': 'Attention{TEXT}', 'build': [], "
            f"'call': []}}]",
            "modules of no kind": "seen['inside'] = [7, None, {}]",
            "no parameters": "seen['parameters'] = []",
            "parameters of no kind": "seen['parameters'] = {'a': 7}",
            "parameters without width": "[one.update(shape=[0] * len(one['shape'])) for one in seen.get('parameters', "
            "())]",
            "parameters of 40 axes": "[one.update(shape=[1] * 40) for one in seen.get('parameters', ())]",
            "parameters without numbers": "[one.update(shape=[0, 10**18]) for one in seen.get('parameters', ())]",
            "900 parameters": "seen['parameters'] = [{'name': f'w{i}', 'shape': [21, 13], 'is_mask': False, 'owner': "
            "''} for i in range(900)]",
            "names of parameters": f"[one.update(name=one['name'] + '{TEXT}') for one in seen.get('parameters', ())]",
            "long names": "[one.update(name=one['name'] * 99999) for one in seen.get('parameters', ())]",
            "equal names": "[one.update(name='a') for one in seen.get('parameters', ())]",
            "masks": "[one.update(is_mask=True) for one in seen.get('parameters', ())]",
            "owners": "[one.update(owner=[7]) for one in seen.get('parameters', ())]",
            "attributes": "seen['attributes'] = {'num_heads': 10**300, 'n_heads': -7, 'causal': 'no', 'num_kv_heads': "
            "0}",
            "no attributes": "seen['attributes'] = [1, 2]",
            "numbers of heads": "seen['attributes'] = {'num_heads': 2**63, 'num_kv_heads': 2**62}",
            "a mask of text": f"seen['loose'] = [{{'name': '{TEXT}', 'shape': [3, 3], 'is_mask': True}}]; "
            f"seen['elsewhere'] = {{'name': '{TEXT}', 'line': 3}}",
            "where it is elsewhere": "seen['elsewhere'] = {'name': 7, 'line': 'x'}",
            "gradients": f"seen['without_gradient'] = ['{TEXT}'] * 1000",
            "gradients of no kind": "seen['gradients'] = 7",
            "gradients of other shapes": "returned.update({f'gradient.{n}': torch.ones(3) for n in "
            "seen.get('gradients', ())})",
            "methods": "seen['methods'] = ['reset_cache', 7, '__class__'] * 1000",
            "dropouts": "seen['dropouts'] = [float('nan'), 10**400, 'x']",
            "dropped": "seen['dropped'] = [{'p': 'x', 'line': 'y'}] * 3; returned.update({f'dropped.{i}': "
            "torch.zeros(0) for i in range(3)})",
            "changed": "[one.update(after={}) for one in seen['calls']]",
            "changed names": f"[one.update(after=['{TEXT}']) for one in seen['calls']]",
            "a failure": f"seen['failed'] = {{'type': '{TEXT}', 'message': '{TEXT}', 'line': 3, 'function': '{TEXT}'}}",
            "a failure of no kind": "seen['failed'] = {'type': 7}",
            "an empty failure": "seen['failed'] = {'type': '', 'message': '', 'line': 0, 'function': ''}",
            "failed calls": f"[one.update(failed={{'type': '{TEXT}', 'message': '{TEXT}', 'line': 3, 'function': "
            f"''}}) for one in seen['calls']]",
            **{
                f"line {n}": f"[one.update(failed={{'type': 'E', 'message': 'm', 'line': {line}, 'function': ''}}) "
                "for one in seen['calls']]"
                for n, line in enumerate(["-1", "10**4000", "float('nan')", "'\\x1b[31m'", "[1]", "1.5", "True",
                "10**400 * 1.0 if False else 1e308", "None"])
            },
            "a huge message": "[one.update(failed={'type': 'E', 'message': 'x' * 3 * 10**6, 'line': 3, 'function': "
            "''}) for one in seen['calls']]",
            "a message without lines": "[one.update(failed={'type': 'E', 'message': '', 'line': 3, 'function': ''}) "
            "for one in seen['calls']]",
            "values without end": "seen['x'] = [[0] * 1000] * 1000",
            "deep values": "import functools; seen['x'] = functools.reduce(lambda a, _: [a], range(900), 0)",
            "not JSON": "seen['x'] = {1, 2}",
            "NaN in JSON": "seen['built'] = float('nan')",
            "surrogates": "seen['\\udcff'] = '\\udcff'",
            "tensors of other types": "returned.update({n: t.bool() for n, t in returned.items()})",
            "complex tensors": "returned.update({n: t + 1j for n, t in returned.items()})",
            "tensors nobody asked for": "returned.update({f'out.0.{i}': torch.randn(2, 5, 21) for i in range(3000)})",
            "outputs nobody asked for": "returned.update({f'out.0.{i}': torch.randn(2, 5, 21) for i in range(2000)}); "
            "[one.update(outputs=[f'out.0.{i}' for i in range(2000)]) for one in seen['calls']]",
            "an output of 10^6 numbers": "returned.update({n: torch.zeros(2, 5, 10**5) for n in returned})",
            "60 MiB": "returned['x'] = torch.zeros(60 << 17, dtype=torch.float64)",
            "80 MiB": "returned['x'] = torch.zeros(80 << 17, dtype=torch.float64)",
        }.items()
    },
    **{
        f"written: {what}": layer(WRITTEN, forward=written)
        for what, written in {
            "a verdict": "write([], {'status': 'right'})",
            "an output": "write([['out.0.0', 'F64', [2, 5, 21]]], {'calls': [{'outputs': ['out.0.0'], 'changed': "
            "[]}], 'recorded': [], 'dropped': []}, bytes(2 * 5 * 21 * 8))",
            "two results": "write([], None); write([], None)",
            "half a result": "os.write(4, b'REGARD'); os._exit(0)",
            "more tensors than bytes": "write([['out.0.0', 'F64', [2, 5, 21]]], {}, bytes(9))",
            "tensors without size": "write([[f'a{i}', 'F64', [0, 2**40]] for i in range(4000)], {})",
            "an unknown type": "write([['a', 'F7', [1]]], {})",
            "a name with escapes": "write([['\\x1b[31m', 'F64', [0]]], {})",
            "a result and an endless loop": "os.write(4, b'REGARD')\nwhile True: pass",
            "a failure": f"os.write(4, (b'REGARD\\x00\\x01' + (200).to_bytes(8, 'little') + json.dumps({{'tensors': "
            f"[], 'values': {{'failure': {{'type': '{TEXT[:30]}', 'message': '=1', 'stage': 'load', 'lines': [['x', "
            f"2**30, 'f']]}}, 'values': None}}}}).encode().ljust(200))); os._exit(0)",
        }.items()
    },
    "written: a description": layer(WRITTEN, after="write([], {'classes': [{'name': 'CausalAttention', 'build': [], "
    "'call': []}], 'functions': []})"),
    "written: many classes": layer(WRITTEN, after="write([], {'classes': [{'name': f'Attention{i}', 'build': [], "
    "'call': []} for i in range(30000)], 'functions': []})"),
    "written: arguments": layer(WRITTEN, after="p = {'name': 'x', 'kind': 'VAR_KEYWORD', 'required': True, 'default': "
    "10**300}\nwrite([], {'classes': [{'name': 'CausalAttention', 'build': [p] * 3000, 'call': [p] * 3000}], "
    "'functions': []})"),
    # Odd classes
    **{
        f"odd: {what}": layer(**parts)
        for what, parts in {
            "endless constructor": {"init": "while True: pass"},
            "constructor that prints": {"init": "while True: print('x' * 999)"},
            "constructor that exits": {"init": "import os; os._exit(0)"},
            "memory in the constructor": {"init": "self.x = [bytearray(10**8) for _ in range(99)]"},
            "parameters by expand": {"init": "self.p = nn.Parameter(torch.zeros(1, 1).expand(10**6, 10**6))"},
            "3000 parameters": {"init": "self.p = nn.ParameterList(torch.zeros(2, 2) for _ in range(3000))"},
            "3000 modules": {"init": "self.m = nn.ModuleList(nn.MultiheadAttention(2, 1) for _ in range(1000))"},
            "parameters without values": {"init": "self.p = nn.Parameter(torch.ones(3, 5, device='meta'))"},
            "a lazy parameter": {"init": "self.p = nn.LazyLinear(7)"},
            "sparse parameters": {"init": "self.p = nn.Parameter(torch.eye(3).to_sparse())"},
            "no width": {"init": "self.W_query, self.W_key, self.W_value = (nn.Linear(d_in, 0) for _ in range(3))"},
            "names of parameters": {"init": f"self.register_parameter('{TEXT}'.replace('.', ''), "
            "nn.Parameter(torch.ones(3, 5)))"},
            "a long name": {"init": "self.register_parameter('W' * 10**6, nn.Parameter(torch.ones(3, 5)))"},
            "a module in itself": {"init": "self.__dict__['_modules']['me'] = self"},
            "modules without end": {"body": "def modules(self):\n    while True: yield self"},
            "parameters without end": {"body": "def named_parameters(self, *a, **k):\n    while True: yield 'a', "
            "nn.Parameter(torch.ones(3))"},
            "no parameters": {"body": "def named_parameters(self, *a, **k): return iter(())"},
            "train that exits": {"body": "def train(self, mode=True): import os; os._exit(3)"},
            "to that returns nothing": {"body": "def to(self, *a): return None"},
            "another __class__": {"body": "__class__ = property(lambda s: (_ for _ in ()).throw(ValueError('no')))"},
            "attributes without end": {"body": "def __getattr__(self, name):\n    while True: pass"},
            "__del__ without end": {"body": "def __del__(self):\n    while True: pass"},
            "__call__ that raises": {"body": "def __call__(self, *a): raise BaseException('x')"},
            "a hook": {"init": "self.register_forward_hook(lambda m, a, out: out * 0 + 7)"},
            "a hook of all modules": {"after": "torch.nn.modules.module.register_module_forward_hook(lambda m, a, "
            "out: out * 0)"},
            "a property that hangs": {"body": "num_heads = property(lambda s: [0 for _ in iter(int, 1)])"},
            "attributes that are huge": {"init": "self.num_heads = 10**5000; self.context = 10**4000"},
            "attributes that are odd": {"init": "self.num_heads = float('nan'); self.n_heads = -3; self.config = "
            "{'num_heads': float('inf')}"},
            "a signature": {"after": "CausalAttention.__signature__ = 7"},
            "a name": {"after": f"CausalAttention.__name__ = '{TEXT.replace('/', '')}'"},
            "another module": {"after": "CausalAttention.__module__ = 'torch.nn'"},
            "__mro__ that hangs": {"after": "class M(type):\n    def mro(cls):\n        while True: pass\nclass "
            "C(metaclass=M): pass"},
            "a metaclass": {"after": "class M(type):\n    def __getattribute__(cls, name): raise SystemExit(0)\nclass "
            "Attention(metaclass=M): pass"},
            "a module that answers all": {"after": "def __getattr__(name): return CausalAttention"},
            "3000 classes": {"after": "for i in range(3000): globals()[f'Attention{i}'] = type(f'Attention{i}', "
            "(nn.Module,), {'__module__': __name__})"},
            "100 attention classes": {"after": "for i in range(100): globals()[f'Attention{i}'] = "
            "type(f'Attention{i}', (CausalAttention,), {'__module__': __name__})"},
            "100000 functions": {"after": "for i in range(10**5): globals()[f'attend{i}'] = lambda x: x"},
            "defaults that cannot be printed": {"after": "class D(int):\n    def __repr__(self):\n        while True: "
            "pass\n    __str__ = __format__ = __repr__\ndef attention(q, k, v, d=D()): return q"},
            "a default that is a huge number": {"after": "def attention(q, k, v, d=10**5000): return q"},
            "a text without end": {"forward": "class S(str):\n    def __str__(self): return self\n    def "
            "__getitem__(self, i):\n        while True: pass\nraise ValueError(S('x'))"},
            "an error that cannot be printed": {"forward": "class E(Exception):\n    def __str__(self):\n        "
            "while True: pass\nraise E"},
            "an error with a hostile name": {"forward": f"raise type('{TEXT}', (Exception,), {{}})('{TEXT}')"},
            "an error with a hostile message": {"forward": f"raise ValueError('{TEXT}')"},
            "an error with a formula": {"forward": "raise ValueError('=HYPERLINK(\"http://x\";\"y\")')"},
            "an error of 10^8 characters": {"forward": "raise ValueError('x' * 10**8)"},
            "an error about overflow": {"forward": "raise RuntimeError('overflow dtype float shape view contiguous')"},
            "an error of memory": {"forward": "raise MemoryError"},
            "an error without end": {"forward": "e = ValueError('x')\ne.__cause__ = e; e.__context__ = e\nraise e"},
            "a group of errors": {"forward": "raise BaseExceptionGroup('x', [KeyboardInterrupt(), SystemExit(0)])"},
            "an interrupt": {"forward": "raise KeyboardInterrupt"},
            "an end": {"forward": "raise SystemExit(0)"},
            "an endless forward": {"forward": "while True: pass"},
            "a deep recursion": {"forward": "import sys; sys.setrecursionlimit(10**9)\ndef g(n): return g(n + 1)\n"
            "g(0)"},
            "a sleep in forward": {"forward": "import time; time.sleep(10**6)"},
            "prints in forward": {"forward": "while True: print('x' * 999)"},
            "files in forward": {"forward": "for i in range(10**6): open(f'{i}', 'w').write('x' * 10**5)"},
            "threads that go on": {"forward": "import threading\ndef w():\n    while True: x.add_(1)\n"
            "[threading.Thread(target=w).start() for _ in range(4)]"},
            "a change of the weights": {"forward": "with torch.no_grad(): [p.zero_() for p in self.parameters()]",
            "scale": SCALE, "out": "out + 1"},
            "torch threads": {"forward": "torch.set_num_threads(64); torch.randn(2000, 2000) @ torch.randn(2000, "
            "2000)"},
            "another default type": {"top": "import torch; torch.set_default_dtype(torch.float16)"},
            "another default device": {"top": "import torch; torch.set_default_device('meta')"},
            "inference mode": {"top": "import torch; torch.inference_mode().__enter__()"},
            "deterministic errors": {"top": "import torch; torch.use_deterministic_algorithms(True); "
            "torch.autograd.set_detect_anomaly(True)"},
            "a deep source": {"after": "x = " + "(" * 90 + "0" + ")" * 90},
            "a source too deep": {"after": "x = " + "(" * 5000 + "0" + ")" * 5000},
            "a long sum": {"after": "x = " + "+".join(["0"] * 50000)},
            "a long line": {"after": "# self." + "drop" * 200_000},
            "many numbers": {"body": "sizes = [" + ",".join(map(str, range(4, 20000))) + "]"},
            "many lines": {"after": "x = 0\n" * 150_000},
        }.items()
    },
    # Functions
    "a mask of NaN": "import torch\ndef causal_mask(T): return torch.where(torch.ones(T, T).tril() > 0, float('nan'), "
    "0.0)\n",
    "a mask of odd numbers": "import torch\ndef causal_mask(T): return torch.randn(T, T).abs().tril()\n",
    "a mask of one size": "import torch\ndef causal_mask(T): return torch.zeros(10**9)\n",
    "a softmax of NaN": "def softmax(x): return x * float('nan')\n",
    "a softmax that is huge": "import torch\ndef softmax(x): return torch.zeros(()).expand(10**5, 10**5)\n",
    "a softmax without end": "def softmax(x):\n    while True: pass\n",
    "heads of no shape": "def split_heads(x, num_heads): return x.sum()\n",
    "a merge of everything": "def merge_heads(x): return [x] * 9999\n",
    "attention of nothing": "def attention(q, k, v): return v[..., :0]\n",
    "attention of guesses": "def attention(q, k, v):\n    s = q @ k.mT\n    return [(s / n).softmax(-1) @ v for n in "
    "(1, 2, k.shape[-1], k.shape[-1] ** 0.5)]\n",
}  # fmt: skip
