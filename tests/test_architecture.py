"""The shape of the package: one ordered list of modules, the doors, the size of a module."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

from tests.support import ROOT

PACKAGE = ROOT / "scheduler"
ROW = re.compile(r"^\| `(\w+)/?` \| .+ \|(.*)\|$", re.MULTILINE)
# Parts of the standard library that only some modules may use; every third-party package is a door as well.
GUARDED = {"argparse", "sqlite3", "zoneinfo"}


def read_table(readme: str) -> dict[str, set[str]]:
    """The last table of a README: each module in its order, with its doors."""
    table = readme.rpartition("|---|---|---|\n")[2]
    return {name: set(re.findall(r"`(\w+)`", doors)) for name, doors in ROW.findall(table)}


MODULES = read_table((ROOT / "README.md").read_text("utf-8"))


def files_of(module: str) -> list[Path]:
    """The files of a module, which may be a folder."""
    folder = PACKAGE / module
    return sorted(folder.glob("*.py")) if folder.is_dir() else [PACKAGE / f"{module}.py"]


def imports_of(path: Path) -> set[str]:
    """Every module that a file imports, inside functions and under TYPE_CHECKING included."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            module = node.module or ""
            deeper = {f"{module}.{alias.name}" for alias in node.names} if module == "scheduler" else set()
            found |= deeper or {module}
    return found


def test_the_table_lists_every_module_once() -> None:
    found = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__"}
    found |= {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert set(MODULES) == found


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_from_above(module: str) -> None:
    order = list(MODULES)
    names = {name for path in files_of(module) for name in imports_of(path)}
    own = {name.split(".")[1] for name in names if name.startswith("scheduler.")}
    assert own - {module} <= set(order[: order.index(module)])


@pytest.mark.parametrize("module", MODULES)
def test_a_module_uses_no_door_but_its_own(module: str) -> None:
    used = {name.split(".")[0] for path in files_of(module) for name in imports_of(path)} - {"scheduler"}
    doors = {name for name in used if name in GUARDED or name not in sys.stdlib_module_names}
    assert doors == MODULES[module]


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_has_at_most_300_lines(path: Path) -> None:
    assert len(path.read_text("utf-8").splitlines()) <= 300


def test_no_module_bears_a_public_name_of_the_package() -> None:
    import scheduler

    assert not set(scheduler.__all__) & set(MODULES)


def test_the_face_of_the_package_loads_nothing_until_it_is_used() -> None:
    import subprocess

    code = "import sys, scheduler; print([name for name in sys.modules if name.startswith('scheduler.')])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True).stdout
    assert out.strip() == "[]"


def test_the_spanish_table_is_the_same_list() -> None:
    spanish = read_table((ROOT / "README.es.md").read_text("utf-8"))
    assert list(spanish.items()) == list(MODULES.items())
