"""Submissions that attack: what each does, and how its run must end. `variants` makes hundreds of them.

A source may name VICTIM (a folder outside with files), SUPERVISOR (a process id) and PACKAGE (the folder of regard).
`f(x)` is what the driver calls; a source without one gets an f that returns its argument.
"""

from __future__ import annotations

import base64
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

DRIVER = """
def drive(submission, tensors, values):
    return {"out": submission.f(tensors["x"])}
"""
DENIED = "PermissionError"


class Attack(NamedTuple):
    name: str
    ends: str  # a word of Outcome, or "failed" with the type of the exception after a colon
    source: str


def attack(name: str, ends: str, source: str) -> Attack:
    return Attack(name, ends, textwrap.dedent(source).strip() + "\n")


ATTACKS = [
    # Time
    attack("an endless loop", "out of time", "while True: pass"),
    attack("an endless loop in f", "out of time", "def f(x):\n    while True: pass"),
    attack("an endless sleep", "out of time", "import time; time.sleep(10**6)"),
    attack("a regular expression without end", "out of time", "import re; re.match(r'(a+)+$', 'a' * 64 + 'b')"),
    attack("products without end", "out of time", "import torch; x = torch.ones(800, 800)\nwhile True: x = x @ x / "
    "800"),
    attack("one long product", "out of time", "import torch; torch.linalg.matrix_power(torch.ones(1500, 1500), 2**62 "
    "- 1)"),
    attack("a power in C", "out of time", "x = 10 ** 10 ** 8"),
    attack(
        "signals that are ignored",
        "out of time",
        """
        import signal
        for number in set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}:
            try: signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError): pass
        while True: pass
        """,
    ),
    attack("a process that stops itself", "out of time", "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"),
    attack("an exception that cannot be printed", "out of time", "class E(Exception):\n    def __str__(self):\n       "
    " while True: pass\nraise E()"),
    # Processes and threads
    attack("fork", f"failed: {DENIED}", "import os; os.fork()"),
    attack("a fork bomb", "out of time", "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"),
    attack("a program", f"failed: {DENIED}", "import subprocess; subprocess.run(['/bin/sh', '-c', 'echo'])"),
    attack("exec", f"failed: {DENIED}", "import os; os.execv('/bin/sh', ['sh'])"),
    attack("os.system", "finished", "import os; assert os.system('touch VICTIM/new') != 0"),
    attack("multiprocessing", f"failed: {DENIED}", "import multiprocessing as m; p = "
    "m.get_context('fork').Process(target=print); p.start()"),
    attack("vfork by number", "finished", "import ctypes, platform\nif platform.machine() == 'x86_64': assert "
    "ctypes.CDLL(None).syscall(58) == -1"),
    attack("threads without end", "failed: RuntimeError", "import threading, time\nwhile True: "
    "threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()"),
    attack("a thread that stays", "finished", "import threading, time; threading.Thread(target=time.sleep, "
    "args=(1000,)).start()"),
    attack(
        "a thousand threads of little memory",
        "too many threads",
        """
        import threading, time
        threading.stack_size(1 << 15)
        try:
            for _ in range(1000): threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
        except RuntimeError: pass
        print(threading.active_count(), flush=True)
        time.sleep(1000)
        """,
    ),
    attack(
        "a storm of sync",
        "finished",
        """
        import ctypes, os, platform
        c = ctypes.CDLL(None, use_errno=True)
        for _ in range(1000):
            os.sync()
            assert c.syncfs(0) == -1 and ctypes.get_errno() == 1
        if platform.machine() == "x86_64": assert c.syscall(162) == -1
        """,
    ),
    # Memory
    attack("a list without end", "out of memory", "x = []\nwhile True: x.append(bytes(10**6))"),
    attack("a list of small things", "out of memory", "x = []\nwhile True: x.extend([[]] * 10**6)"),
    attack("a tensor too large", "out of memory", "import torch; torch.ones(10**12)"),
    attack("tensors without end", "out of memory", "import torch; x = []\nwhile True: x.append(torch.ones(10**7))"),
    attack("memory in a file", "failed", "import os; os.memfd_create('x')"),
    attack("a recursion", "failed: RecursionError", "def f(x): return f(x)"),
    attack("a recursion without limit", "*", "import sys; sys.setrecursionlimit(10**9)\ndef f(x): return [f(y) for y "
    "in [x]]"),
    attack("limits raised", "failed: ValueError", "import resource as r; r.setrlimit(r.RLIMIT_AS, (-1, -1))"),
    attack("processor time raised", "failed: ValueError", "import resource as r; r.setrlimit(r.RLIMIT_CPU, (-1, -1))"),
    # Files
    attack("deleting", f"failed: {DENIED}", "import shutil; shutil.rmtree('VICTIM')"),
    attack("deleting a file", f"failed: {DENIED}", "import os; os.unlink('VICTIM/file')"),
    attack("deleting at home", "finished", "import os, shutil; shutil.rmtree(os.path.expanduser('~'), "
    "ignore_errors=True)"),
    attack("writing outside", f"failed: {DENIED}", "open('VICTIM/new', 'w')"),
    attack("writing into a file", f"failed: {DENIED}", "open('VICTIM/file', 'r+').write('x')"),
    attack("truncating", f"failed: {DENIED}", "import os; os.truncate('VICTIM/file', 0)"),
    attack("truncating while reading", f"failed: {DENIED}", "import os; os.open('VICTIM/file', os.O_RDONLY | "
    "os.O_TRUNC)"),
    attack("truncating itself", f"failed: {DENIED}", "import os; os.open(__file__, os.O_RDONLY | os.O_TRUNC)"),
    attack("writing to itself", f"failed: {DENIED}", "open(__file__, 'a').write('x')"),
    attack("renaming", f"failed: {DENIED}", "import os; os.rename('VICTIM/file', 'VICTIM/other')"),
    attack("renaming from its folder", "failed", "import os; open('mine', 'w'); os.rename('mine', 'VICTIM/mine')"),
    attack("a hard link", "failed", "import os; os.link('VICTIM/file', 'mine')"),
    attack("a symbolic link", f"failed: {DENIED}", "import os; os.symlink('VICTIM', 'mine'); open('mine/new', 'w')"),
    attack("permissions", f"failed: {DENIED}", "import os; os.chmod('VICTIM/file', 0)"),
    attack("owners", f"failed: {DENIED}", "import os; os.chown('VICTIM/file', 7, 7)"),
    attack("times", f"failed: {DENIED}", "import os; os.utime('VICTIM/file', (7, 7))"),
    attack("attributes", f"failed: {DENIED}", "import os; os.setxattr('VICTIM/file', 'user.x', b'7')"),
    attack("making a device", "failed", "import os, stat; os.mknod('null', stat.S_IFCHR | 0o666, os.makedev(1, 3))"),
    attack("a large file", "failed: OSError", "with open('large', 'wb') as file:\n    while True: "
    "file.write(bytes(10**6))"),
    attack("many files", "wrote too much", "import itertools\nfor i in itertools.count():\n    open(f'{i}', "
    "'w').close()"),
    attack("many large files", "wrote too much", "import itertools, time\nfor i in itertools.count():\n    "
    "open(f'{i}', 'wb').write(bytes(10**6)); time.sleep(0.003)"),
    attack("deep folders", "wrote too much", "import os\nwhile True: os.mkdir('a'); os.chdir('a')"),
    attack("folders without permissions", "finished", "import os; os.mkdir('a', 0o500); os.mkdir('b'); "
    "os.mkdir('b/c', 0)"),
    attack("writing everywhere", "finished", """
        import os
        folders = '/', '/tmp', '/var/tmp', '/dev/shm', '/run', '/etc', '/proc/self', 'VICTIM'
        for folder in (*folders, os.path.dirname(__file__), os.path.dirname(os.__file__)):
            for way in (lambda p: open(p, 'w'), os.mkdir, os.mkfifo, lambda p: os.symlink('/', p)):
                try: way(folder + '/regard-was-here')
                except OSError: pass
                else: raise ValueError(folder)
        """),
    # Reading what it must not know
    attack("importing regard", "failed: ImportError", "import regard"),
    attack("importing regard without the finder", f"failed: {DENIED}", "import sys; sys.meta_path = [m for m in "
    "sys.meta_path if isinstance(m, type)]; sys.path.insert(0, 'PACKAGE/..'); import regard"),
    attack("reading regard", f"failed: {DENIED}", "open('PACKAGE/attention/attend.py').read()"),
    attack("reading its neighbours", f"failed: {DENIED}", "import os; os.listdir(os.path.dirname(__file__))"),
    attack("reading a file outside", f"failed: {DENIED}", "open('VICTIM/file').read()"),
    attack("reading passwords", f"failed: {DENIED}", "open('/etc/shadow').read()"),
    attack("the supervisor's memory", f"failed: {DENIED}", "open('/proc/SUPERVISOR/mem', 'rb')"),
    attack("the worker's memory", f"failed: {DENIED}", "import os; open(f'/proc/{os.getppid()}/mem', 'rb')"),
    attack("the supervisor's environment", f"failed: {DENIED}", "open('/proc/SUPERVISOR/environ', 'rb')"),
    attack("the supervisor's arguments", f"failed: {DENIED}", "open('/proc/SUPERVISOR/cmdline', 'rb')"),
    attack("the supervisor's files", f"failed: {DENIED}", "import os; os.listdir('/proc/SUPERVISOR/fd')"),
    attack("a secret of the environment", "failed: KeyError", "import os; os.environ['REGARD_TEST_SECRET']"),
    attack("ptrace", "finished", "import ctypes; assert ctypes.CDLL(None).ptrace(16, SUPERVISOR, 0, 0) == -1"),
    attack("the frames above", "failed: KeyError", "import sys\nframe = sys._getframe()\nwhile frame: names, frame = "
    "frame.f_globals, frame.f_back\nnames['reference']"),
    # Other processes
    attack("killing its parent", f"failed: {DENIED}", "import os; os.kill(os.getppid(), 9)"),
    attack("killing the supervisor", f"failed: {DENIED}", "import os; os.kill(SUPERVISOR, 9)"),
    attack("killing its group", f"failed: {DENIED}", "import os; os.killpg(0, 9)"),
    attack("killing all", f"failed: {DENIED}", "import os; os.kill(-1, 9)"),
    attack("killing by handle", f"failed: {DENIED}", "import os; os.pidfd_open(SUPERVISOR)"),
    attack("signals by a file", f"failed: {DENIED}", "import fcntl, os; r, w = os.pipe(); fcntl.fcntl(r, "
    "fcntl.F_SETOWN, SUPERVISOR)"),
    attack("limits of the supervisor", f"failed: {DENIED}", "import resource as r; r.prlimit(SUPERVISOR, "
    "r.RLIMIT_CPU, (1, 1))"),
    attack("processors of the supervisor", f"failed: {DENIED}", "import os; os.sched_setaffinity(SUPERVISOR, {0})"),
    attack("priority of the supervisor", f"failed: {DENIED}", "import os; os.setpriority(os.PRIO_PROCESS, SUPERVISOR, "
    "19)"),
    attack("real-time scheduling", f"failed: {DENIED}", "import os; os.sched_setscheduler(0, os.SCHED_FIFO, "
    "os.sched_param(1))"),
    attack("a message to another process", "finished", "import ctypes; c = ctypes.CDLL(None, use_errno=True); assert "
    "c.msgsnd(0, bytes(64), 8, 2048) == -1; assert ctypes.get_errno() == 1"),
    attack("a semaphore of another process", "finished", "import ctypes; c = ctypes.CDLL(None, use_errno=True); "
    "assert c.semop(0, bytes(64), 1) == -1; assert ctypes.get_errno() == 1"),
    # Network and kernel
    attack("a socket", f"failed: {DENIED}", "import socket; socket.create_connection(('127.0.0.1', 80))"),
    attack("a local socket", f"failed: {DENIED}", "import socket; "
    "socket.socket(socket.AF_UNIX).connect('/run/dbus/system_bus_socket')"),
    attack("a netlink socket", f"failed: {DENIED}", "import socket; socket.socket(16, 3, 0)"),
    attack("a download", "failed", "import urllib.request; urllib.request.urlopen('http://127.0.0.1')"),
    attack("io_uring", "finished", "import ctypes; assert ctypes.CDLL(None).syscall(425, 8, 0) == -1"),
    attack("namespaces", "finished", "import ctypes; assert ctypes.CDLL(None).unshare(0x10000000) == -1"),
    attack("a mount", "finished", "import ctypes; assert ctypes.CDLL(None).mount(b'none', b'VICTIM', b'tmpfs', 0, "
    "None) == -1"),
    attack("chroot", f"failed: {DENIED}", "import os; os.chroot('/')"),
    attack("a terminal", f"failed: {DENIED}", "open('/dev/tty')"),
    # Ends
    attack("os._exit", "ended early", "import os; os._exit(0)"),
    attack("os._exit with a code", "ended early", "import os; os._exit(7)"),
    attack("sys.exit", "ended early", "import sys; sys.exit()"),
    attack("SystemExit in f", "ended early", "def f(x): raise SystemExit(0)"),
    attack("KeyboardInterrupt", "failed: KeyboardInterrupt", "raise KeyboardInterrupt"),
    attack("an exception group of ends", "failed", "raise BaseException('the end')"),
    attack("abort", "killed", "import os; os.abort()"),
    attack("a segmentation fault", "killed", "import ctypes; ctypes.string_at(0)"),
    attack("killing itself", "killed", "import os; os.kill(os.getpid(), 9)"),
    attack("a hook at the end", "finished", "import atexit, time; atexit.register(time.sleep, 1000)"),
    attack("an error in import", "failed: ModuleNotFoundError", "import no_such_module"),
    attack("an error of syntax", "failed: SyntaxError", "def f(x) return x"),
    attack("a null byte", "failed: SyntaxError", "x = 1\0"),
    attack("another encoding", "failed: SyntaxError", "# coding: no-such-coding"),
    attack("no f", "failed: AttributeError", "f = 7; del f\ng = lambda: 0; f = None; del f"),
    attack("an object that cannot be shown", "out of time", "class E(Exception):\n    def __repr__(self):\n        "
    "while True: pass\n    __str__ = __repr__\nprint(E())"),
    attack("a hostile exception", "failed", r"raise type('\x1b[31m<b>=1+1', (Exception,), {})('\x1b]0;x\x07\n"
    "=cmd|x!A1 <script>')"),
    # Output
    attack("printing without end", "wrote too much", "while True: print('x' * 1000)"),
    attack("errors without end", "wrote too much", "import sys\nwhile True: sys.stderr.write('x' * 1000)"),
    attack("writing to stdout by number", "wrote too much", "import os\nwhile True: os.write(1, bytes(1000))"),
    attack("control characters", "finished", r"print('\x1b[2J\x1b]0;title\x07\u202e')"),
    attack("no output", "finished", "import sys; sys.stdout.close(); sys.stderr = None; print = None"),
    attack("closed descriptors", "ended early", "import os; os.closerange(0, 64)"),
    attack("garbage to all descriptors", "malformed", "import os\nfor fd in range(64):\n    try: os.write(fd, "
    "b'garbage')\n    except OSError: pass"),
    # Results
    attack("a huge result", "wrote too much", "import os\nwhile True: os.write(4, bytes(10**5))"),
    attack("a forged header", "malformed", "import os; os.write(4, b'REGARD\\x00\\x01' + (2**62).to_bytes(8, "
    "'little')); os._exit(0)"),
    attack("a forged length", "malformed", "import os; os.write(4, b'REGARD\\x00\\x01' + (7).to_bytes(8, 'little') + "
    "b'{\"a\":1}'); os._exit(0)"),
    attack("a deep header", "malformed", "import os; t = b'[' * 60000; os.write(4, b'REGARD\\x00\\x01' + "
    "len(t).to_bytes(8, 'little') + t); os._exit(0)"),
    attack("a large tensor of the header", "malformed", "import os; t = "
    "b'{\"tensors\":[[\"out\",\"F64\",[99999999,99999999]]],\"values\":null}'; os.write(4, b'REGARD\\x00\\x01' + "
    "len(t).to_bytes(8, 'little') + t); os._exit(0)"),
    attack("a pickle", "malformed", "import os, pickle; os.write(4, pickle.dumps(print)); os._exit(0)"),
    attack("no tensor", "failed: TypeError", "def f(x): return 'all right'"),
    attack("a verdict", "failed: TypeError", "def f(x): return True"),
    attack("a tensor of another kind", "failed", "import torch\ndef f(x): return torch.eye(3).to_sparse()"),
    attack("a tensor without values", "failed", "import torch\ndef f(x): return torch.ones(3, device='meta')"),
    attack("torch.allclose replaced", "finished", "import torch; torch.allclose = torch.equal = lambda *a, **k: True; "
    "torch.testing.assert_close = print"),
    attack("equality replaced", "finished", "import torch; torch.Tensor.__eq__ = lambda *a: True"),
    attack("shapes replaced", "malformed", "import torch; torch.Tensor.shape = property(lambda s: (1,))"),
    attack("modules replaced", "*", "import builtins, sys; builtins.isinstance = lambda *a: True; builtins.len = "
    "lambda a: 7; sys.modules.clear()"),
    attack("json replaced", "*", "import json; json.dumps = lambda *a, **k: '[' * 99"),
]  # fmt: skip
BY_NAME = {one.name: one for one in ATTACKS}


def aim(source: str, victim: Path, supervisor: int, package: Path) -> str:
    """A source with the places that it attacks."""
    for name, value in (("VICTIM", victim), ("SUPERVISOR", supervisor), ("PACKAGE", package)):
        source = source.replace(name, str(value))
    return source


def with_f(source: str) -> str:
    """A source with an f, if it has none."""
    return source if re.search(r"^(def f\(|f =)", source, re.MULTILINE) else f"{source}\n\ndef f(x):\n    return x\n"


WAYS = {
    "as it is": "{source}",
    "in f": "def f(x):\n{indented}    return x\n",
    "in a class": "class Layer:\n    def __init__(self):\n{deeper}        pass\ndef f(x):\n    Layer()\n    return x\n",
    "in a thread": "import threading\ndef work():\n{indented}    pass\nt = threading.Thread(target=work); t.start(); "
    "t.join()\n",
    "in a thread that goes on": "import threading\ndef work():\n{indented}    pass\n"
    "threading.Thread(target=work).start()\n",
    "encoded": "import base64\nexec(compile(base64.b64decode('{encoded}'), 'x', 'exec'), globals())\n",
    "at the end": "import atexit\n@atexit.register\ndef end():\n{indented}    pass\n",
    "when it is deleted": "class D:\n    def __del__(self):\n{deeper}        pass\nD(); x = D(); y = [D()]; "
    "y.append(y); del x, y\n",
    "until it works": "def once():\n{indented}    pass\nwhile True:\n    try: once()\n    except BaseException: pass\n",
    "quietly": "def once():\n{indented}    pass\ntry: once()\nexcept BaseException: pass\n",
    "in backward": "import torch\nclass B(torch.autograd.Function):\n    @staticmethod\n    def forward(c, x): return "
    "x * 1\n    @staticmethod\n    def backward(c, g):\n{deeper}        return g\ndef f(x):\n    with "
    "torch.enable_grad():\n        y = x.clone().requires_grad_(); B.apply(y).sum().backward()\n    return x\n",
    "by a signal": "import signal, time\ndef handle(*_):\n{indented}    pass\nsignal.signal(signal.SIGALRM, handle); "
    "signal.setitimer(signal.ITIMER_REAL, 0.01); time.sleep(0.05)\n",
}  # fmt: skip


def variants(aimed: Callable[[str], str] = str) -> Iterator[tuple[str, str]]:
    """Name and source of every attack in every way to hide it; `aimed` puts in the places that it attacks."""
    for one in ATTACKS:
        for way, frame in WAYS.items():
            source = aimed(one.source)
            if way != "as it is" and ("def f(" in source or "coding" in source or "\0" in source):
                source += "f(0)\n" if "def f(" in source else ""
            fields = {
                "source": source,
                "indented": textwrap.indent(source, "    "),
                "deeper": textwrap.indent(source, "        "),
                "encoded": base64.b64encode(source.encode()).decode(),
            }
            yield f"{one.name}, {way}", frame.format(**fields) if way != "as it is" else source
