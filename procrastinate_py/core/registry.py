"""Which classes stored tasks may name, and by what name."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterable
from typing import Any

from .errors import ConfigurationError, UnknownTaskError, UnstorableError, UntrustedTaskError
from .stored_text import LONGEST_NAME, written_tag

VALUE_TAGS = frozenset(
    "bytes date datetime decimal escaped frozenset map set time timedelta tuple uuid".split(),
)
"""Names that values within a task's state are stored under: no class can have them."""

_MAIN = ("__main__", "__mp_main__")
# No slash, no empty part: a path finder joins the last part to a folder, whatever it holds.
_MODULE = re.compile(r"[\w\-]+(?:\.[\w\-]+)*")
_MISSING = object()


def stored_module(module: str) -> str:
    """The name under which a module's classes are stored: that of ``__main__`` is its real one, if it has one."""
    if module not in _MAIN:
        return module
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return getattr(spec, "name", None) or "__main__"


class Registry:
    """Stored names and their classes.

    A class is trusted if it was registered or seen, or if the module that it says it's from lies in a trusted
    package. An untrusted module is never imported. What it resolves once, it keeps.
    """

    def __init__(self, trust: Iterable[str] = ()) -> None:
        packages = (trust,) if isinstance(trust, str) else tuple(trust)
        self.trust = frozenset(_package(package) for package in packages)
        self._classes: dict[str, type] = {}
        self._names: dict[type, str] = {}
        self._registered: dict[str, type] = {}

    def register(self, cls: type, name: str | None = None, aliases: Iterable[str] = ()) -> None:
        """Trusts the class, stores it as ``name``, and reads it under that, its aliases and its own path.

        Raises ConfigurationError where a name can't be one or is another class's.
        """
        path = _path_of(cls)
        names = [*([name] if name is not None else []), *aliases]
        for each in names:
            _check_name(each)
        if path is None and not names:
            raise ConfigurationError(f"{cls.__qualname__} is defined inside a function: register it under a name")
        if path is not None:
            names.append(path)
        for each in names:
            self._refuse_clash(each, cls)
        for each in names:
            self._classes[each] = self._registered[each] = cls
        self._names[cls] = names[0] if name is not None or path is None else path

    def see(self, cls: type) -> None:
        """Trusts the class of an object that the application itself delayed."""
        name = self.tag_of(cls)
        if self._classes.get(name) is not cls:
            self._refuse_clash(name, cls)
            self._classes[name] = cls

    def tag_of(self, cls: type) -> str:
        """The name that the class is stored under. Raises UnstorableError where it couldn't be found by it."""
        name = self._names.get(cls)
        if name is None:
            name = self._names[cls] = _findable_path(cls)
        return name

    def trusts(self, cls: type) -> bool:
        """Whether a stored task that names this class would be loaded."""
        return self._classes.get(self.tag_of(cls)) is cls or self._trusts_module(cls.__module__)

    def resolve(self, tag: str) -> type:
        """The class stored as ``tag``. Raises UnknownTaskError or UntrustedTaskError."""
        known = self._classes.get(tag)
        if known is not None:
            return known
        module, colon, qualname = tag.partition(":")
        if not colon or not _MODULE.fullmatch(module) or not all(part.isidentifier() for part in qualname.split(".")):
            raise UnknownTaskError(
                f"{tag[:LONGEST_NAME]!r} names no class: neither registered nor of the form module:Class"
            )
        if not self._trusts_module(module):
            raise UntrustedTaskError(f"{tag}: module {module!r} isn't in a trusted package ({self._trust_hint()})")
        found = _walk(_import(tag, module), qualname)
        if not isinstance(found, type):
            raise UnknownTaskError(f"{tag}: {'no such class' if found is _MISSING else 'not a class'} in {module!r}")
        if not self._trusts_module(found.__module__):
            raise UntrustedTaskError(
                f"{tag}: the class is {found.__module__}'s own, which isn't in a trusted package ({self._trust_hint()})"
            )
        self._classes[tag] = found
        return found

    def _trust_hint(self) -> str:
        return f"trusted: {', '.join(sorted(self.trust)) or 'none'}; see Environment(trust=[...])"

    def _trusts_module(self, module: object) -> bool:
        if not isinstance(module, str):
            return False
        if "__main__" in self.trust and stored_module(module) == stored_module("__main__"):
            return True
        prefix = module
        while prefix:
            if prefix in self.trust:
                return True
            prefix = prefix.rpartition(".")[0]
        return False

    def _refuse_clash(self, name: str, cls: type) -> None:
        taken = self._classes.get(name)
        if taken is not None and taken is not cls and _path_of(taken) != _path_of(cls):
            raise ConfigurationError(
                f"the stored name {name!r} of {cls.__module__}.{cls.__qualname__} is already that of "
                f"{taken.__module__}.{taken.__qualname__}"
            )

    def __getstate__(self) -> dict[str, Any]:
        """For a process that is spawned: a class travels by its path, so one that has none can't."""
        for name, cls in self._registered.items():
            if not _is_at_its_path(cls):
                raise ConfigurationError(
                    f"{cls.__qualname__}, registered as {name!r}, can't be found by another process: "
                    "define it at the top of a module, or use start_method='fork'"
                )
        findable = {name: cls for name, cls in self._classes.items() if _is_at_its_path(cls)}
        names = {cls: name for cls, name in self._names.items() if _is_at_its_path(cls)}
        return {"trust": self.trust, "_classes": findable, "_names": names, "_registered": self._registered}


def _package(package: object) -> str:
    if isinstance(package, str) and _MODULE.fullmatch(package):
        return package
    raise ConfigurationError(f"trust must list names of packages, such as 'myapp', not {package!r}")


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name.strip() or not name.isprintable() or len(name) > LONGEST_NAME:
        raise ConfigurationError(
            f"a stored name must be a printable str of 1 to {LONGEST_NAME} characters, not {name!r}"
        )
    if name in VALUE_TAGS:
        raise ConfigurationError(f"{name!r} can't be a class's stored name: values are stored under it")


def _path_of(cls: type) -> str | None:
    """``module:Outer.Inner``; None for a class inside a function."""
    if "<" in cls.__qualname__:
        return None
    return f"{stored_module(cls.__module__)}:{cls.__qualname__}"


def _findable_path(cls: type) -> str:
    path = _path_of(cls)
    name = getattr(cls, "__qualname__", "?")
    if path is None:
        raise UnstorableError(
            f"{name} is defined inside a function, so nobody else can find it: "
            "define it at the top of a module, or register it under a name"
        )
    if not _is_at_its_path(cls) or len(path) > LONGEST_NAME or not path.isprintable():
        raise UnstorableError(f"{path!r} can't be found under that name: register the class under another")
    written_tag(path)
    return path


def _is_at_its_path(cls: type) -> bool:
    module = sys.modules.get(cls.__module__)
    return module is not None and _walk(module, cls.__qualname__) is cls


def _walk(start: object, qualname: str) -> object:
    found = start
    for part in qualname.split("."):
        try:
            found = getattr(found, part, _MISSING)
        except Exception:
            return _MISSING
    return found


def _import(tag: str, module: str) -> object:
    if module in _MAIN or module == stored_module("__main__"):
        return sys.modules.get("__main__")
    loaded = sys.modules.get(module)
    if loaded is not None:
        return loaded
    try:
        return importlib.import_module(module)
    except (Exception, SystemExit) as error:
        reason = type(error).__name__
    # The import's own words are left out: a module may quote its settings.
    raise UnknownTaskError(f"{tag}: module {module!r} can't be imported ({reason})")
