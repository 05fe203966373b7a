"""Defaults of a project: ``[tool.safe_arm]`` in the nearest ``pyproject.toml``, for the options of the command line."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from safe_arm.cli.choice import OneOf
from safe_arm.cli.matrix import Varied
from safe_arm.cli.spelling import similar
from safe_arm.core.errors import UsageError

TABLE = "[tool.safe_arm]"
#: Options that belong to one call: the file it writes, and this option itself.
_OF_ONE_CALL = frozenset(("output", "isolated"))
_FOUND = "safe_arm.project_defaults"


def _read_defaults(ctx: click.Context, param: click.Parameter, isolated: bool) -> None:
    """Give a command its project's defaults, before its other options are looked at."""
    path = None if isolated or ctx.resilient_parsing else nearest(Path.cwd())
    table = _table(path) if path else {}
    if path and table:
        ctx.meta[_FOUND] = path
        ctx.default_map = _checked(ctx, path, table)


ISOLATED = click.option(
    "--isolated",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_read_defaults,
    help=f"Leave out {TABLE} of pyproject.toml, which has defaults for these options.",
)


def nearest(folder: Path) -> Path | None:
    """Return the ``pyproject.toml`` of a directory or of its nearest parent that has one."""
    return next(
        (
            each
            for up in (folder, *folder.parents)
            if (each := up / "pyproject.toml").is_file()
        ),
        None,
    )


def _table(path: Path) -> Mapping[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        tools = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {})
    except (
        OSError,
        ValueError,
    ) as error:  # TOMLDecodeError and UnicodeDecodeError are ValueErrors
        raise UsageError(
            f"{path} cannot be read: {error}; mend it, or leave it out with --isolated"
        ) from error
    table = tools.get("safe_arm", {}) if isinstance(tools, dict) else {}
    if not isinstance(table, dict):
        raise UsageError(
            f"{path}: tool.safe_arm is {_shown(table)}; it wants a table, {TABLE}"
        )
    return table


def _checked(
    ctx: click.Context, path: Path, table: Mapping[str, Any]
) -> dict[str, Any]:
    """Return by parameter what the table says of this command's, all of it checked.

    Raises:
        UsageError: an unknown key, or a value that its option does not take.
    """
    accepted = {
        key: param for command in _configured(ctx) for key, param in _keys(command)
    }
    own = dict(_keys(ctx.command))
    found: dict[str, Any] = {}
    for key, value in table.items():
        if key not in accepted:
            first = similar(key, list(accepted))
            names = [*first, *(each for each in accepted if each not in first)]
            raise UsageError(
                f"{path}, {TABLE}: key {key!r} is not known; accepted: {', '.join(names)}"
            )
        given = _value(path, key, own.get(key, accepted[key]), value)
        if key in own:
            found[own[key].name or key] = given
    return found


def _configured(ctx: click.Context) -> Iterator[click.Command]:
    """Yield every command that takes defaults."""
    root = ctx.find_root().command
    commands = (
        root.commands.values() if isinstance(root, click.Group) else (ctx.command,)
    )
    yield from (
        command
        for command in commands
        if any(param.name == "isolated" for param in command.params)
    )


def _keys(command: click.Command) -> Iterator[tuple[str, click.Option]]:
    for param in command.params:
        if isinstance(param, click.Option):
            keys = (name[2:] for name in param.opts if name.startswith("--"))
            yield from ((key, param) for key in keys if key not in _OF_ONE_CALL)


def _value(path: Path, key: str, option: click.Option, value: object) -> object:
    """Return a value of the table as its option takes it from the command line.

    Raises:
        UsageError: it is of another type, or none that is accepted.
    """
    if isinstance(option.type, OneOf) and type(value) is int:
        value = str(value)  # --activations is a number, among words
    is_list = option.multiple and not isinstance(option, Varied)
    listed = value if is_list else [value]
    types, words = _wanted(option, is_list)
    if not isinstance(listed, list) or any(type(each) not in types for each in listed):
        raise UsageError(f"{path}, {TABLE}: {key} is {_shown(value)}; it wants {words}")
    listed = [
        _in_folder(path.parent, key, each)
        if isinstance(option.type, click.Path)
        else each
        for each in listed
    ]
    for each in listed:
        try:
            option.type.convert(each, option, None)
        except (click.BadParameter, UsageError) as error:
            text = (
                error.message if isinstance(error, click.BadParameter) else str(error)
            )
            raise UsageError(f"{path}, {TABLE}: {key}: {text}") from error
    return listed if option.multiple else listed[0]


def _wanted(option: click.Option, is_list: bool) -> tuple[tuple[type, ...], str]:
    if option.is_flag:
        return (bool,), "true or false"
    if isinstance(option.type, click.types.IntParamType):
        return (int,), "a whole number"
    if isinstance(option.type, click.types.FloatParamType):
        return (int, float), "a number"
    return (str,), "a list of strings" if is_list else "a string"


def _in_folder(folder: Path, key: str, value: str) -> str:
    """Return a file's name as it is from here: the table means its own directory."""
    word = value == "random" or (
        key == "config" and not (folder / value).exists()
    )  # Vela has files of its own
    return value if word or folder == Path.cwd() else str(folder / value)


def _shown(value: object) -> str:
    return (
        {True: "true", False: "false"}[value]
        if isinstance(value, bool)
        else repr(value)
    )


def note_overridden() -> None:
    """Say on stderr which of the project's defaults the command line overrides."""
    ctx = click.get_current_context()
    for key, option in _keys(ctx.command):
        name = option.name or key
        if (
            name not in (ctx.default_map or {})
            or ctx.get_parameter_source(name) is not ParameterSource.COMMANDLINE
        ):
            continue
        default, given = (
            option.type_cast_value(ctx, (ctx.default_map or {})[name]),
            ctx.params[name],
        )
        if default != given:
            used, left = (
                _shown_option(option, key, value) for value in (given, default)
            )
            click.echo(
                f"Note: {used} of the command line is used, not {left} of {ctx.meta[_FOUND]}",
                err=True,
            )


def _shown_option(option: click.Option, key: str, value: object) -> str:
    if option.is_flag:
        return f"--{key}" if value else (option.secondary_opts or [f"no --{key}"])[0]
    values = value if isinstance(value, tuple) else (value,)
    return " ".join(f"--{key} {each}" for each in values)


def explicit(name: str) -> bool:
    """Whether an option of the running command is given on the command line."""
    ctx = click.get_current_context(silent=True)
    return ctx is None or ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE


def whence(name: str) -> str:
    """Return where an option's value is from, for the end of an error; empty if that is the command line."""
    ctx = click.get_current_context(silent=True)
    if ctx is None or ctx.get_parameter_source(name) is not ParameterSource.DEFAULT_MAP:
        return ""
    return f" ({TABLE} of {ctx.meta[_FOUND]} has it; --isolated leaves that out)"
