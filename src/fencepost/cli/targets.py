"""What `check` and `describe` are told to look at: modules, and what is in them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fencepost.celery import Fencepost, installed_on
from fencepost.commands import Definition
from fencepost.durable import DurableTask
from fencepost.engine.registry import leniently
from fencepost.errors import ConfigurationError, FencepostError
from fencepost.findings import Source
from fencepost.saga import BranchNode, LoopNode, MapNode, Saga

USUAL_NAMES = ("app", "celery", "fencepost", "fp")


class AppNotFoundError(FencepostError):
    """The argument leads to no Celery app, Fencepost, saga or durable task."""

    code = "cli.app-not-found"


@dataclass
class Target:
    """What an argument leads to.

    Attributes:
        source: The module.
        installed: The apps with Fencepost.
        definitions: The sagas and tasks that are named; those of the apps come on top.
    """

    source: Source | None
    installed: list[Fencepost] = field(default_factory=list)
    definitions: list[Definition] = field(default_factory=list)

    @property
    def everything(self) -> list[Definition]:
        """All sagas and tasks, each once; those with errors too."""
        found = list(self.definitions)
        for fencepost in self.installed:
            found += [*fencepost.registry, *fencepost.registry.refused]
        return list(dict.fromkeys(found))


def find(argument: str) -> Target:
    """What `module` or `module:attribute` leads to.

    Raises:
        AppNotFoundError: The module can't be imported, or there is nothing of the kind in it.
        ConfigurationError: Fencepost isn't installed on the app.
    """
    module_name, _, attribute = argument.partition(":")
    with leniently():
        module = imported(module_name)
    file = getattr(module, "__file__", None)
    target = Target(Source(file) if file else None)
    if attribute:
        found = getattr(module, attribute, None)
        if isinstance(found, Saga | DurableTask):
            target.definitions.append(found)
        else:
            target.installed.append(_fencepost(found, argument, f"{attribute!r} is"))
        return target
    for found in dict.fromkeys(_top_level(module)):
        if isinstance(found, Fencepost):
            target.installed.append(found)
        else:
            target.definitions.append(found)
    if not target.installed and not target.definitions:
        raise AppNotFoundError(
            f"in {module_name} there is no saga, durable task, or Celery app with Fencepost:"
            f" name one as {module_name}:attribute",
            target=argument,
        )
    return target


def load(application: str) -> Fencepost:
    """The Fencepost that `module:attribute` leads to, itself or by its Celery app.

    Raises:
        AppNotFoundError: The module can't be imported, or there is none in it.
        ConfigurationError: Fencepost isn't installed on the app.
    """
    module_name, _, attribute = application.partition(":")
    module = imported(module_name)
    if attribute:
        return _fencepost(getattr(module, attribute, None), application, f"{attribute!r} is")
    candidates = (getattr(module, name, None) for name in USUAL_NAMES)
    found = next((one for one in candidates if isinstance(one, Fencepost) or _is_app(one)), None)
    if found is None:
        raise AppNotFoundError(
            f"in {module_name}, none of {', '.join(USUAL_NAMES)} is a Celery app or Fencepost:"
            f" name it as {module_name}:attribute",
            target=application,
        )
    return _fencepost(found, application, "it is")


def imported(module_name: str) -> Any:
    """The module of that name; the folder in which the program was started is looked in too.

    Raises:
        AppNotFoundError: It can't be imported; says why.
    """
    # A console script does not look where it was started, and `celery -A` does.
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module_name)
    except FencepostError:
        raise
    except Exception as problem:
        raise AppNotFoundError(
            f"{module_name!r} can't be imported: {type(problem).__name__}: {problem}",
            next=f"python -c 'import {module_name}'",
        ) from problem


def _fencepost(found: Any, argument: str, what: str) -> Fencepost:
    if isinstance(found, Fencepost):
        return found
    if found is None or not _is_app(found):
        module_name = argument.partition(":")[0]
        raise AppNotFoundError(
            f"in {module_name}, {what} no Celery app or Fencepost, and no saga or durable task",
            target=argument,
        )
    installed = installed_on(found)
    if installed is None:
        raise ConfigurationError(
            f"Fencepost is not installed on {argument}: call fencepost.install(app, ...) in the"
            " module that makes the app"
        )
    return installed


def _is_app(candidate: Any) -> bool:
    return hasattr(candidate, "conf") and hasattr(candidate, "tasks")


def _top_level(module: Any) -> Iterator[Fencepost | Definition]:
    values = list(vars(module).values())
    parts = {id(part) for value in values if isinstance(value, Saga) for part in _parts(value)}
    for value in values:
        if isinstance(value, Fencepost | DurableTask | Saga):
            if id(value) not in parts:
                yield value
        elif not isinstance(value, type) and _is_app(value):
            installed = installed_on(value)
            if installed is not None:
                yield installed


def _parts(saga: Saga[Any, Any]) -> Iterator[Saga[Any, Any]]:
    """Child sagas and paths: they are looked at with the saga that they belong to."""
    for node in saga.all_nodes():
        match node:
            case MapNode():
                yield node.child
                yield from _parts(node.child)
            case BranchNode():
                yield from node.paths
            case LoopNode():
                yield node.body
