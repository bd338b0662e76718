"""The plan of the house: imports point one way, names are unique, every module has its tests."""

import ast
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE, TESTS = ROOT / "src" / "regard", ROOT / "tests"
LESSONS = SOURCE / "school" / "lessons"  # files of the course, which the package carries as data
MODULES = sorted(path for path in SOURCE.rglob("*.py") if LESSONS not in path.parents)

# A room may import only from rooms further down. Rooms on one line do not import each other.
FLOORS = [
    {"cli", "public"},
    {"commands"},
    {"school"},
    {"show"},
    {"gpt"},
    {"adoption", "heads"},
    {"traces", "mistakes"},
    {"attention", "ladder"},
    {"steps"},
    {"support"},
]
# The same inside a room, bottom up: a room or module may import only from those before it.
INSIDE = {
    "heads": ["calls", "measure", "inputs", "intercept", "report", "watch", "probe", "change", "atlas"],
    "school": ["sandbox", "check", "exercises", "course", "grading", "drawing"],
}
SEALED = {"ladder": {"steps", "support"}}  # these import nothing else, even from below
LONGEST = 400  # lines of a file
WIDEST = 20  # modules of a folder


def room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def dotted(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {dotted(path): path for path in MODULES}


def imported(path: Path) -> set[str]:
    """The modules of regard that a file imports, also inside functions, but not for type checkers alone."""
    tree = ast.parse(path.read_text())
    for_types = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for child in ast.walk(node)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {name if name in NAMES else node.module for name in names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name for name in found if name in NAMES}


GRAPH = {name: imported(path) - {name} for name, path in NAMES.items()}


def test_every_room_is_on_a_floor():
    rooms = {room(path) for path in MODULES} - {"__init__", "__main__"}
    assert rooms == set().union(*FLOORS)


def test_imports_point_downward_only():
    floor = {name: level for level, names in enumerate(FLOORS) for name in names}
    wrong = []
    for name, others in GRAPH.items():
        here = floor.get(room(NAMES[name]))
        rooms = {room(NAMES[other]) for other in others} - {room(NAMES[name])}
        wrong += [f"{name} imports {other}" for other in rooms if here is not None and floor.get(other, 99) <= here]
    assert wrong == []


def test_imports_inside_a_room_point_downward_only():
    wrong = []
    for outer, order in INSIDE.items():
        floor = {name: level for level, name in enumerate(order)}
        inner = {name: name.split(".")[2] for name in GRAPH if name.startswith(f"regard.{outer}.")}
        assert set(inner.values()) == set(order)
        for name, here in inner.items():
            others = {inner[other] for other in GRAPH[name] if other in inner} - {here}
            wrong += [f"{name} imports {outer}.{other}" for other in others if floor[other] > floor[here]]
    assert wrong == []


def test_no_module_imports_itself_by_way_of_others():
    cycles, done = [], set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            cycles.append(" → ".join((*path[path.index(name) :], name)))
        elif name not in done:
            for other in sorted(GRAPH[name]):
                visit(other, (*path, name))
            done.add(name)

    for name in sorted(set(GRAPH) - {"regard"}):
        visit(name, ())
    assert cycles == []


def test_the_ladder_stands_alone():
    for name, allowed in SEALED.items():
        for path in (SOURCE / name).rglob("*.py"):
            rooms = {room(NAMES[other]) for other in GRAPH[dotted(path)]} - {name, "__init__"}
            assert rooms <= allowed, path


def test_every_module_has_a_test_file_of_its_name():
    missing = [
        str(path.relative_to(SOURCE))
        for path in MODULES
        if path.name not in ("__init__.py", "__main__.py")
        and not (TESTS / path.relative_to(SOURCE).parent / f"test_{path.name}").is_file()
    ]
    assert missing == []


def test_no_public_name_is_defined_twice():
    places = defaultdict(set)
    for path in MODULES:
        # A command has the name of what it runs: `regard trace` and regard.trace.
        rooms = {room(path)} & {"commands", "__main__"}
        for node in ast.parse(path.read_text()).body:
            is_public = isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_")
            if is_public and not rooms:
                places[node.name].add(dotted(path))
    twice = {name: found for name, found in places.items() if len(found) > 1}
    # The last rung of the ladder and the layer to ship are the same layer, once to read and once to ship.
    assert twice == {"MultiHeadAttention": {"regard.attention.layer", "regard.ladder.multi_head"}}


def test_no_folder_is_too_wide_to_look_through():
    assert len([path for path in SOURCE.iterdir() if path.name != "__pycache__"]) <= 18
    folders = Counter(path.parent for path in MODULES if path.name != "__init__.py")
    folders += Counter(path.parent for path in SOURCE.rglob("*.js"))
    assert {str(folder.relative_to(SOURCE)): n for folder, n in folders.items() if n > WIDEST} == {}


def branches(function: ast.AST) -> int:
    """Places where a function may go one way or another: a reader has to think of both."""
    one = (ast.If, ast.For, ast.While, ast.IfExp, ast.ExceptHandler, ast.comprehension, ast.Assert, ast.match_case)
    nodes = list(ast.walk(function))
    either = sum(len(node.values) - 1 for node in nodes if isinstance(node, ast.BoolOp))
    return sum(isinstance(node, one) for node in nodes) + either


def test_functions_have_few_branches():
    counts = {
        f"{dotted(path)}.{node.name}": branches(node)
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    }
    assert {name: n for name, n in counts.items() if n > 20} == {}
    assert len([name for name, n in counts.items() if n > 15]) <= 20


def test_no_line_is_wider_than_the_screen():
    held_out = TESTS / "school" / "check" / "held_out"  # as learners write them
    tests = [path for path in TESTS.rglob("*.py") if held_out not in path.parents]
    files = [*MODULES, *tests, *(ROOT / "benchmarks").rglob("*.py")]
    wide = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in files
        for number, line in enumerate(path.read_text().split("\n"), 1)
        if len(line) > 120
    ]
    assert wide == []


def test_no_function_hides_a_module_of_its_name():
    code = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]:\n"
        "    module = importlib.import_module(name)\n"
        "    parent, _, last = name.rpartition('.')\n"
        "    if parent and getattr(importlib.import_module(parent), last) is not module: print(name)\n"
    )
    light = [name for name in NAMES if not name.endswith(("_kernel", "_kernels", "__main__"))]
    light = [name for name in light if "triton" not in NAMES[name].read_text()]  # only where Triton is installed
    done = subprocess.run([sys.executable, "-c", code, *light], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_no_file_is_too_long_to_read():
    built = SOURCE / "show" / "page" / "page.js"  # made of js/ by `make page`
    files = [*MODULES, *TESTS.rglob("*.py"), *(path for path in SOURCE.rglob("*.js") if path != built)]
    assert [f"{path.name}: {n}" for path in files if (n := path.read_text().count("\n")) > LONGEST] == []


def test_importing_regard_loads_nothing_heavy():
    code = "import regard, sys; regard.GPT; regard.ladder.SelfAttention; print(*{m.split('.')[0] for m in sys.modules})"
    loaded = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )
    heavy = {"matplotlib", "typer", "rich", "transformers", "tokenizers", "huggingface_hub", "starlette", "uvicorn"}
    assert loaded & heavy == set()
