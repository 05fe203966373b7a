"""Defaults of a project: ``[tool.safe_arm]`` in the nearest ``pyproject.toml``, for the options of the command line."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from safe_arm.cli.option_types import OneOf, Varied
from safe_arm.cli.spelling import similar
from safe_arm.core.errors import UsageError

TABLE = "[tool.safe_arm]"
#: Options that belong to one call: the file it writes, and this option itself.
_OF_ONE_CALL = frozenset(("output", "isolated"))
_FOUND = "safe_arm.project_defaults"


def _read_defaults(ctx: click.Context, param: click.Parameter, isolated: bool) -> None:
    """Give a command its project's defaults, before its other options are looked at."""
    if isolated or ctx.resilient_parsing:
        return
    path = nearest(Path.cwd())
    if path is None:
        return
    table = _table(path)
    if table:
        ctx.meta[_FOUND] = path
        ctx.default_map = _checked(ctx, path, table)


ISOLATED = click.option(
    "--isolated",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_read_defaults,
    help=f"Ignore the defaults in {TABLE} of pyproject.toml.",
)


def nearest(folder: Path) -> Path | None:
    """Return the ``pyproject.toml`` of a directory or of its nearest parent that has one."""
    for each in (folder, *folder.parents):
        file = each / "pyproject.toml"
        if file.is_file():
            return file
    return None


def _table(path: Path) -> Mapping[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        table = document.get("tool", {}).get("safe_arm", {})
    except (OSError, ValueError, AttributeError) as error:  # also of the decoders
        raise UsageError(
            f"{path} cannot be read: {error}; fix it, or ignore it with --isolated"
        ) from error
    if not isinstance(table, dict):
        raise UsageError(
            f"{path}: tool.safe_arm is {_shown(table)}; expected a table, {TABLE}"
        )
    return table


def _checked(
    ctx: click.Context, path: Path, table: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the defaults of this command by parameter, after a check of the whole table.

    Raises:
        UsageError: an unknown key, or a value that its option does not take.
    """
    accepted: dict[str, click.Option] = {}
    for command in _configured(ctx):
        accepted.update(_keys(command))
    own = dict(_keys(ctx.command))
    defaults: dict[str, Any] = {}
    for key, value in table.items():
        if key not in accepted:
            names = dict.fromkeys((*similar(key, list(accepted)), *accepted))
            raise UsageError(
                f"{path}, {TABLE}: key {key!r} is not known; accepted: {', '.join(names)}"
            )
        checked = _value(path, key, own.get(key, accepted[key]), value)
        if key in own:
            defaults[own[key].name or key] = checked
    return defaults


def _configured(ctx: click.Context) -> Iterator[click.Command]:
    """Yield every command that takes defaults."""
    root = ctx.find_root().command
    assert isinstance(root, click.Group)
    for command in root.commands.values():
        if any(param.name == "isolated" for param in command.params):
            yield command


def _keys(command: click.Command) -> Iterator[tuple[str, click.Option]]:
    for param in command.params:
        if not isinstance(param, click.Option):
            continue
        for name in param.opts:
            if name.startswith("--") and name[2:] not in _OF_ONE_CALL:
                yield name[2:], param


def _value(
    path: Path,
    key: str,
    option: click.Option,
    value: object,
) -> object:
    """Return a value of the table as its option takes it from the command line.

    Raises:
        UsageError: it is of another type, or none that is accepted.
    """
    if isinstance(option.type, OneOf) and type(value) is int:
        value = str(value)  # --activations is a number, among words
    is_list = option.multiple and not isinstance(option, Varied)
    types, words = _wanted(option, is_list)
    values = [value]
    if is_list:
        values = value if isinstance(value, list) else [None]  # which no option takes
    if any(type(each) not in types for each in values):
        raise UsageError(f"{path}, {TABLE}: {key} is {_shown(value)}; expected {words}")
    if isinstance(option.type, click.Path):
        values = [_in_folder(path.parent, key, str(each)) for each in values]
    for each in values:
        try:
            option.type.convert(each, option, None)
        except (click.BadParameter, UsageError) as error:
            message = getattr(error, "message", error)
            raise UsageError(f"{path}, {TABLE}: {key}: {message}") from error
    return values if option.multiple else values[0]


def _wanted(option: click.Option, is_list: bool) -> tuple[tuple[type, ...], str]:
    if option.is_flag:
        return (bool,), "true or false"
    if isinstance(option.type, click.types.IntParamType):
        return (int,), "a whole number"
    if isinstance(option.type, click.types.FloatParamType):
        return (int, float), "a number"
    if is_list:
        return (str,), "a list of strings"
    return (str,), "a string"


def _in_folder(folder: Path, key: str, value: str) -> str:
    """Return a file's name relative to the current directory; in the table it is relative to the table's directory."""
    if value == "random" or folder == Path.cwd():
        return value
    if key == "config" and not (folder / value).exists():
        return value  # one of Vela's own files
    return str(folder / value)


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)


def note_overridden() -> None:
    """Say on stderr which of the project's defaults the command line overrides."""
    ctx = click.get_current_context()
    defaults = ctx.default_map or {}
    for key, option in _keys(ctx.command):
        name = option.name or key
        source = ctx.get_parameter_source(name)
        if name not in defaults or source is not ParameterSource.COMMANDLINE:
            continue
        default = option.type_cast_value(ctx, defaults[name])
        value = ctx.params[name]
        if default != value:
            used, left_out = (
                " ".join(spelled(option, each)) or f"no --{key}"
                for each in (value, default)
            )
            click.echo(
                f"Note: {used} of the command line is used, not {left_out} of {ctx.meta[_FOUND]}",
                err=True,
            )


def spelled(option: click.Option, value: object) -> list[str]:
    """Return an option with its value as the words of a command line."""
    name = max(option.opts, key=len)
    if option.is_flag:
        return [name] if value else option.secondary_opts[:1]
    values = value if isinstance(value, tuple) else (value,)
    return [f"{name}={each}" for each in values]


def explicit(name: str) -> bool:
    """Return whether an option of the running command is given on the command line."""
    source = click.get_current_context().get_parameter_source(name)
    return source is ParameterSource.COMMANDLINE


def whence(*names: str) -> str:
    """Return the origin of the values of options for the end of an error, or an empty text for the command line."""
    ctx = click.get_current_context()
    if ParameterSource.DEFAULT_MAP not in map(ctx.get_parameter_source, names):
        return ""
    return f" ({TABLE} of {ctx.meta[_FOUND]} has it; --isolated leaves that out)"


def flag(name: str) -> str:
    """Return a parameter as the user writes it."""
    return f"--{name.replace('_', '-')}"
