"""The house rules, enforced by reading the syntax tree of every module."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "tracekit"
MODULES = sorted(PACKAGE.rglob("*.py"))
ROOMS = ("capture", "read", "analyze", "compare", "render")

# What a module of each layer may import of tracekit, besides its own room.
ALLOWED = {
    "errors": set(),
    "model": {"errors"},
    **{room: {"errors", "model"} for room in ROOMS},
    "pipeline": {"errors", "model", *ROOMS},
    "app": {"errors", "model", "pipeline", "render"},
    "cli": {"errors", "model", "pipeline", "render", "app", "capture"},
    "__init__": {"pipeline"},
    "__main__": {"cli"},
}

# Third-party and system modules that have one home.
HOMES = {
    "torch": set(),
    "triton": set(),
    "nvtx": {"capture"},
    "workloads": set(),
    "subprocess": {"capture"},
    "sqlite3": {"read", "capture"},
    "adbc_driver_sqlite": {"read"},
    "adbc_driver_manager": {"read"},
    "ncu_report": {"read"},
    "streamlit": {"render", "app"},
    "altair": {"render"},
    "rich": {"render", "cli"},
    "typer": {"cli"},
}
BANNED_NAMES = {"utils", "util", "common", "helpers", "helper", "core", "manager", "misc"}


def layer(path: Path) -> str:
    relative = path.relative_to(PACKAGE)
    return relative.parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_follow_the_flow_of_data(path: Path) -> None:
    own = layer(path)
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "tracekit" and len(parts) > 1 and (PACKAGE / parts[1]).with_suffix("").name:
            target = parts[1]
            is_module = (PACKAGE / target).is_dir() or (PACKAGE / f"{target}.py").is_file()
            if is_module:
                assert target in ALLOWED[own] | {own}, f"{own} imports {name}"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_libraries_stay_home(path: Path) -> None:
    for name in imports(path):
        home = HOMES.get(name.split(".")[0])
        assert home is None or layer(path) in home, f"{layer(path)} imports {name}"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_module_opens_with_one_line_that_says_its_job(path: Path) -> None:
    doc = ast.get_docstring(ast.parse(path.read_text()))
    assert doc, "no docstring"
    first = doc.splitlines()[0]
    assert first.endswith((".", ":", "``.")), first
    assert path.stem not in BANNED_NAMES
    assert not BANNED_NAMES & set(path.relative_to(ROOT).parts)


@pytest.mark.parametrize("path", sorted((PACKAGE / "analyze").glob("*.py")), ids=lambda p: p.name)
def test_analysis_has_no_row_loops(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute):
            assert node.attr not in {"iterrows", "apply", "applymap"}, f"{path.name}:{node.lineno}"


CAPTURE_SIDE = [
    "tracekit", "tracekit.errors", "tracekit.model.labels", "tracekit.model.manifest",
    *(f"tracekit.capture.{path.stem}" for path in sorted((PACKAGE / "capture").glob("[a-z]*.py"))),
    "tracekit.capture.__main__",
]  # fmt: skip


@pytest.mark.parametrize("module", CAPTURE_SIDE)
def test_the_capture_side_needs_the_standard_library_alone(module: str) -> None:
    code = (
        "import sys\n"
        "class Block:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        top = name.split('.')[0]\n"
        "        if top != 'tracekit' and top not in sys.stdlib_module_names:\n"
        "            raise ImportError('blocked ' + name)\n"
        "sys.meta_path.insert(0, Block())\n"
        f"import {module}\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("module", "absent"),
    [("tracekit.cli", ("pandas", "streamlit", "pyarrow")), ("tracekit.pipeline", ("streamlit", "altair"))],
)
def test_heavy_imports_are_lazy(module: str, absent: tuple[str, ...]) -> None:
    code = f"import sys, {module}; print([m for m in {absent!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("path", sorted((ROOT / "workloads").rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_workloads_take_little_of_tracekit(path: Path) -> None:
    """The label grammar, the manifest and the errors, which need no third-party package; else the public API."""
    allowed = {"tracekit", "tracekit.errors", "tracekit.model.labels", "tracekit.model.manifest"}
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            assert {alias.name for alias in node.names if alias.name.startswith("tracekit")} <= allowed
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("tracekit"):
            names = {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
            assert names & allowed, f"{path}: {node.module}"
