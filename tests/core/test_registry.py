"""E21, E22, U5: which classes load, and by what names."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from procrastinate_py.core.codec import Codec
from procrastinate_py.core.errors import ConfigurationError, UnknownTaskError, UnstorableError, UntrustedTaskError
from procrastinate_py.core.registry import Registry
from tests.core.sample_tasks import Bag, Colour, Outer, Popen, SendEmail, Task

HERE = "tests.core.sample_tasks"


@pytest.mark.parametrize("trust", [["tests"], ["tests.core"], [HERE], "tests", ("x", "tests")])
def test_a_class_of_a_trusted_package_is_found_by_its_path(trust: Any) -> None:
    """E21"""
    registry = Registry(trust)
    assert registry.resolve(f"{HERE}:Outer.Inner") is Outer.Inner
    assert registry.tag_of(Outer.Inner) == f"{HERE}:Outer.Inner"


@pytest.mark.parametrize("trust", [[], ["test"], ["tests.cor"], [f"{HERE}.Bag"], ["testsuite"], ["core"], ["__main__"]])
def test_a_prefix_of_letters_is_not_a_package(trust: list[str]) -> None:
    """E21"""
    with pytest.raises(UntrustedTaskError, match="see Environment"):
        Registry(trust).resolve(f"{HERE}:Bag")


@pytest.mark.parametrize("trust", [[""], [1], ["a b"], ["a..b"], [None], [".a"]])
def test_trust_that_names_no_package_is_refused(trust: list[Any]) -> None:
    """E21"""
    with pytest.raises(ConfigurationError, match="trust"):
        Registry(trust)


def test_a_class_that_was_seen_or_registered_needs_no_trusted_package() -> None:
    """E21"""
    seen, registered = Registry(), Registry()
    seen.see(Bag)
    registered.register(Bag)
    assert seen.resolve(f"{HERE}:Bag") is registered.resolve(f"{HERE}:Bag") is Bag
    with pytest.raises(UntrustedTaskError):
        seen.resolve(f"{HERE}:SendEmail")


def test_a_class_is_not_trusted_for_being_reexported() -> None:
    """U5"""
    assert Popen.__module__ == "subprocess"
    with pytest.raises(UntrustedTaskError, match="subprocess's own"):
        Registry(["tests"]).resolve(f"{HERE}:Popen")


def test_a_registered_name_outlives_a_move_of_the_class() -> None:
    """E22"""
    registry = Registry()
    registry.register(Bag, name="welcome", aliases=["old.module:Welcome", "hello there"])
    codec = Codec(registry)
    text = codec.checked_dump(Bag(1))
    assert text == '!welcome {"value": 1}'
    for tag in ("welcome", "old.module:Welcome", "hello%20there", f"{HERE}:Bag"):
        assert type(codec.load(f'!{tag} {{"value": 1}}')) is Bag
    registry.register(SendEmail, aliases=["mail"])
    assert registry.tag_of(SendEmail) == f"{HERE}:SendEmail"
    assert type(codec.load("!mail {}")) is SendEmail


def test_one_name_never_stands_for_two_classes() -> None:
    """E22"""
    registry = Registry()
    registry.register(Bag, name="welcome", aliases=[f"{HERE}:Task"])
    registry.register(Bag, name="welcome")
    with pytest.raises(ConfigurationError, match=r"'welcome' of .*SendEmail is already that of .*Bag"):
        registry.register(SendEmail, name="welcome")
    with pytest.raises(ConfigurationError, match="already"):
        registry.register(SendEmail, aliases=["welcome"])
    with pytest.raises(ConfigurationError, match="already"):
        registry.see(Task)
    assert registry.tag_of(SendEmail) == f"{HERE}:SendEmail"
    assert registry.resolve("welcome") is Bag


@pytest.mark.parametrize("name", ["", " ", "a\nb", "x" * 501, "set", "datetime", "escaped", 5, "\x00"])
def test_a_name_that_cannot_be_one_is_refused(name: Any) -> None:
    """E22"""
    with pytest.raises(ConfigurationError):
        Registry().register(Bag, name=name)
    with pytest.raises(ConfigurationError):
        Registry().register(Bag, aliases=[name])


def test_a_class_inside_a_function_needs_a_name() -> None:
    """E14 E22"""

    class Local(Task):
        pass

    registry = Registry(["tests"])
    with pytest.raises(UnstorableError, match="inside a function.*register it under a name"):
        Codec(registry).checked_dump(Local())
    with pytest.raises(ConfigurationError, match="inside a function"):
        registry.register(Local)
    registry.register(Local, name="local")
    assert type(Codec(registry).load(Codec(registry).checked_dump(Local()))) is Local


def test_a_class_that_its_path_does_not_lead_to_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """E14: what a worker couldn't find fails where it's delayed."""
    registry = Registry(["tests"])
    lost = type("Bag", (Task,), {"__module__": HERE})
    with pytest.raises(UnstorableError, match="can't be found under that name"):
        Codec(registry).checked_dump(lost())
    homeless = type("Homeless", (Task,), {"__module__": "no.such.module"})
    with pytest.raises(UnstorableError, match="can't be found"):
        Codec(registry).checked_dump(homeless())


def test_a_module_that_fails_to_import_makes_its_tasks_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """E30"""
    package = tmp_path / "trusted_pkg"
    package.mkdir()
    (package / "__init__.py").write_text("")
    for name, body in {"exits": "raise SystemExit(3)", "fails": "raise RuntimeError('hunter2')", "typo": "x ="}.items():
        (package / f"{name}.py").write_text(body)
    (tmp_path / "trusted_pkg_evil.py").write_text("")
    (tmp_path / "evil.py").write_text("raise AssertionError('imported by its path')")
    monkeypatch.syspath_prepend(tmp_path)
    registry = Registry(["trusted_pkg"])
    for name in ("exits", "fails", "typo", "missing"):
        with pytest.raises(UnknownTaskError, match="can't be imported") as caught:
            registry.resolve(f"trusted_pkg.{name}:T")
        assert "hunter2" not in str(caught.value)
    for tag in ("trusted_pkg./../../evil:T", "trusted_pkg.\x00:T", "trusted_pkg. :T"):
        with pytest.raises(UnknownTaskError, match="names no class"):
            registry.resolve(tag)
    with pytest.raises(UntrustedTaskError):
        registry.resolve("trusted_pkg_evil:T")


MAIN = """
import sys
from procrastinate_py.core.codec import Codec
from procrastinate_py.core.registry import Registry
class T:
    def run(self): ...
if __name__ == "__main__":
    codec = Codec(Registry(["__main__"]))
    t = T(); t.a = 1
    text = codec.checked_dump(t)
    loaded = Codec(Registry(["__main__"])).load(text)
    print(text, type(loaded) is T, "pkg.mod" in sys.modules)
"""


@pytest.mark.parametrize(("how", "name"), [(["-m", "pkg.mod"], "pkg.mod"), (["pkg/mod.py"], "__main__")])
def test_a_class_of_main_is_stored_under_its_real_module_where_it_has_one(
    tmp_path: Path, how: list[str], name: str
) -> None:
    """E22"""
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").write_text("")
    (tmp_path / "pkg" / "mod.py").write_text(MAIN)
    root = str(Path(__file__).parents[2])
    told = subprocess.run(
        [sys.executable, *how],
        cwd=tmp_path,
        env={"PYTHONPATH": f"{root}:{tmp_path}", "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert told.stdout == f'!{name}:T {{"a": 1}} True False\n', told.stderr


def test_a_spawned_process_main_counts_as_main(monkeypatch: pytest.MonkeyPatch) -> None:
    """E22 E42: there, the module of the script calls itself __mp_main__."""
    main = type(sys)("__mp_main__")
    main.T = type("T", (Task,), {"__module__": "__mp_main__"})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setitem(sys.modules, "__mp_main__", main)
    registry = Registry(["__main__"])
    assert registry.tag_of(main.T) == "__main__:T"
    assert registry.resolve("__main__:T") is main.T
    assert registry.resolve("__mp_main__:T") is main.T
    with pytest.raises(UntrustedTaskError):
        Registry(["tests"]).resolve("__main__:T")


def test_a_registry_travels_to_a_spawned_process() -> None:
    """E42"""
    registry = Registry(["tests.core"])
    registry.register(Bag, name="welcome", aliases=["hello"])
    registry.see(SendEmail)
    there = pickle.loads(pickle.dumps(registry))
    assert there.trust == {"tests.core"}
    assert there.resolve("welcome") is there.resolve("hello") is Bag
    assert there.tag_of(Bag) == "welcome"
    assert there.tag_of(SendEmail) == f"{HERE}:SendEmail"


def test_a_registered_class_that_cannot_travel_is_told() -> None:
    """E42"""

    class Local(Task):
        pass

    registry = Registry()
    registry.register(Local, name="local")
    with pytest.raises(ConfigurationError, match=r"Local, registered as 'local', can't be found by another process"):
        pickle.dumps(registry)


def test_values_within_a_state_need_a_trusted_package_too() -> None:
    """U5"""
    codec = Codec(Registry())
    codec.registry.see(SendEmail)
    with pytest.raises(UntrustedTaskError):
        codec.load(f"!{HERE}:SendEmail {{c: !{HERE}:Colour RED}}")
    assert Codec(Registry(["tests"])).load(f"!{HERE}:SendEmail {{c: !{HERE}:Colour RED}}").c is Colour.RED
