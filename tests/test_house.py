"""The plan of the house: imports point one way, and `import regard` is light."""

import ast
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "regard"

# A room may look only into rooms further down. Rooms on one line do not see each other unless a pair says so.
FLOORS = [
    {"cli", "public"},
    {"commands", "bench"},
    {"show"},
    {"gpt"},
    {"adoption", "heads"},
    {"traces"},
    {"attention", "ladder"},
    {"steps"},
    {"arguments", "files", "drawing"},
]
SEALED = {"ladder": {"steps", "arguments"}}  # these see nothing else, even below


def room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    hidden = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for child in ast.walk(node)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in hidden:
            continue
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module] if node.module != "regard" else [f"regard.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("regard.")}
    return found


def test_every_room_is_on_a_floor():
    rooms = {room(path) for path in SOURCE.rglob("*.py")} - {"__init__"}
    assert rooms == set().union(*FLOORS)


def test_imports_point_downward_only():
    floor = {name: level for level, names in enumerate(FLOORS) for name in names}
    wrong = []
    for path in SOURCE.rglob("*.py"):
        here = room(path)
        if here == "__init__":
            continue
        for other in imported(path) & set(floor) - {here}:
            if floor[other] <= floor[here]:
                wrong.append(f"{path.relative_to(SOURCE)} imports regard.{other}")
    assert wrong == []


def test_the_ladder_stands_alone():
    rooms = set().union(*FLOORS)
    for name, allowed in SEALED.items():
        for path in (SOURCE / name).rglob("*.py"):
            assert imported(path) & rooms - {name} <= allowed, path


def test_importing_regard_loads_nothing_heavy():
    code = "import regard, sys; print(*sorted({m.split('.')[0] for m in sys.modules}))"
    loaded = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )
    heavy = {
        "matplotlib",
        "typer",
        "rich",
        "transformers",
        "tokenizers",
        "huggingface_hub",
        "starlette",
        "uvicorn",
        "onnx",
    }
    assert loaded & heavy == set()
