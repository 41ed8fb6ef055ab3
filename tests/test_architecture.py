"""The shape of the package: who imports whom, what an import costs, what precision it leaves behind."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "needlepoint"

# right imports left, never back; a set is one level
LEVELS = (
    {"core"},
    {"numerics"},
    {"tasks", "models", "losses", "learners"},
    {"channels", "specs_by_name"},
    {"theory", "simulation"},
    {"studies"},
    {"plotting"},
    {"papers", "checkpoints"},
    {"cli", "explorer", "__main__"},
)
LEVEL = {name: i for i, names in enumerate(LEVELS) for name in names}
APART = ({"theory", "simulation"},)
ROOMS = ("location", "indexed")  # of theory and of simulation: one task each, and neither knows the other


def modules_of(path: Path) -> set[str]:
    """Modules of the package that a file imports, anywhere in it, as dotted names without the package's own."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        modules = []
        if isinstance(node, ast.Import):
            modules = [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            modules = [node.module or ""]
            if node.module == "needlepoint":
                modules = [f"needlepoint.{a.name}" for a in node.names]
            if node.module and node.module.startswith("needlepoint."):
                modules = [f"{node.module}.{a.name}" for a in node.names]
        found |= {m.removeprefix("needlepoint.") for m in modules if m.startswith("needlepoint.")}
    return found


def imports_of(path: Path) -> set[str]:
    """Top-level parts of the package that a file imports."""
    return {module.split(".")[0] for module in modules_of(path)}


def files():
    return sorted(p for p in SOURCE.rglob("*.py") if p != SOURCE / "__init__.py")


def violations(part: str, imported: set[str]) -> list[str]:
    known = {i for i in imported if i in LEVEL}
    back = [i for i in known if LEVEL[i] > LEVEL[part]]
    across = [i for pair in APART if part in pair for i in known & (pair - {part})]
    return back + across


@pytest.mark.contract
@pytest.mark.parametrize("path", files(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_go_one_way(path):
    part = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    assert part in LEVEL, f"{part} has no level: add it to the layout"
    assert violations(part, imports_of(path)) == []


@pytest.mark.negative
def test_the_import_check_sees_a_violation(tmp_path):
    bad = tmp_path / "bad.py"
    bad.write_text("def f():\n    from needlepoint.simulation import risks\n    import needlepoint.cli\n")
    assert set(violations("theory", imports_of(bad))) == {"cli", "simulation"}


@pytest.mark.contract
@pytest.mark.parametrize("room", ROOMS)
@pytest.mark.parametrize("part", ["theory", "simulation"])
def test_rooms_do_not_import_each_other(part, room):
    others = {f"{part}.{other}" for other in ROOMS if other != room}
    for path in (SOURCE / part / room).rglob("*.py"):
        imported = {".".join(module.split(".")[:2]) for module in modules_of(path)}
        assert not imported & others, path


@pytest.mark.contract
def test_the_tree_can_be_read():
    """At most fifteen files a folder, no long file, and a map of at most five lines in every package."""
    for folder in {path.parent for path in files()}:
        assert len(list(folder.glob("*.py"))) <= 15, folder
    assert [p for p in files() if len(p.read_text().splitlines()) > 350] == []
    tests = (ROOT / "tests").rglob("*.py")
    assert [p for p in tests if len(p.read_text().splitlines()) > 500] == []
    for path in SOURCE.rglob("__init__.py"):
        text = ast.get_docstring(ast.parse(path.read_text()))
        assert text, path
        assert len(text.splitlines()) <= 6, path  # a sentence, an empty line, and the map


def loaded_after(code: str) -> set[str]:
    script = code + "\nimport sys; print('\\n'.join(m for m in sys.modules if '.' not in m))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "code",
    [
        "from needlepoint.cli import run; run(['--help'])",
        "from needlepoint.cli import run; run(['predict', '--help'])",
        "from needlepoint.cli import run; run(['figures'])",
        "import needlepoint as ndl; ndl.KeyValueAttention(ndl.Erf(scale=0.1)); ndl.SpikedSLR(10, snr=2.0).id",
    ],
)
def test_help_and_specs_are_light(code):
    assert loaded_after(code) & {"jax", "matplotlib", "xarray", "scipy"} == set()


@pytest.mark.contract
def test_a_sweep_without_simulation_loads_none():
    script = """
import sys
import needlepoint as ndl
ndl.sweep(ndl.SpikedSLR(2, 1.0), ndl.LinearRegression(), ndl.Population(), {"task.snr": [1.0, 2.0]})
assert not [name for name in sys.modules if name.startswith("needlepoint.simulation")]
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_importing_leaves_precision_alone_and_results_are_float64():
    script = """
import jax, jax.numpy as jnp, numpy as np
import needlepoint as ndl
ndl.predict
assert not jax.config.jax_enable_x64
model = ndl.KeyValueAttention(ndl.Erf(scale=0.3), unit_norm=True)
task = ndl.SpikedSLR(10, snr=200, relevant_std=0.5**0.5)
value = ndl.population_risk(task, model, ndl.Overlaps(1.0, 1.0)).value
assert type(value) is float
assert abs(value - 0.8774289647846539) < 1e-12, value  # float32 would be off by 1e-7
run = ndl.predict(task, model, ndl.ProjectedDescent(1e-3, 5, ndl.Overlaps(0.1, 0.2)))
assert all(x.dtype == np.float64 and type(x) is np.ndarray for x in run.trajectory.overlaps.values())
assert not jax.config.jax_enable_x64 and jnp.ones(2).dtype == jnp.float32
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_public_names_resolve_and_type_checkers_see_the_same():
    import needlepoint as ndl

    tree = ast.parse((SOURCE / "__init__.py").read_text())
    guarded = next(n for n in tree.body if isinstance(n, ast.If))
    seen = {(a.asname, f"{n.module}") for n in guarded.body if isinstance(n, ast.ImportFrom) for a in n.names}
    assert {name for name, _ in seen} == set(ndl.__all__)
    for name, module in seen:
        assert getattr(ndl, name).__module__ == module
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        ndl.Nonsense  # noqa: B018


LABEL = re.compile(r"eq:[a-z][a-z-]*[a-z]")


def test_equation_labels_stand_in_code_and_docs():
    used = {label for p in files() for label in LABEL.findall(p.read_text())}
    defined: list[str] = []
    for page in (ROOT / "docs" / "theory").glob("*.md"):
        defined += re.findall(r":label: (eq:[a-z-]+)", page.read_text())
    assert len(defined) == len(set(defined)), "a label is defined twice"
    assert used == set(defined)
