from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from command_line import invoke, refused


@dataclass(frozen=True)
class Files:
    """The inputs of an export, in a directory that holds nothing else."""

    model: Path
    data: Path
    output: Path

    def run(self, *arguments: object, command: str = "export", status: int | None = 0, **replaced: object) -> Result:
        """Run ``export``, or another command; a default gives way to an argument, and to None."""
        output = None if command == "check" else self.output
        given = {"model": self.model, "target": "tosa", "calibrate": self.data, "output": output} | replaced
        named = {"--model", *(str(each).partition("=")[0] for each in arguments)}
        options = [
            f"--{name}={value}" for name, value in given.items() if f"--{name}" not in named and value is not None
        ]
        return invoke(command, given["model"], *options, *arguments, status=status)

    def check(self, *arguments: object, **replaced: object) -> Result:
        """Run ``check``."""
        return self.run(*arguments, command="check", **replaced)

    def refuses(self, *arguments: object, says: str | list[str], **replaced: object) -> Result:
        """Run what ends as bad input does: status 2, one line that says so, no file."""
        result = self.run(*arguments, status=2, **replaced)
        refused(result, *([says] if isinstance(says, str) else says))
        assert not list(self.output.parent.iterdir())
        return result


@pytest.fixture(scope="session")
def save() -> Callable[..., Path]:
    """Write a module's exported program to a path."""

    def save(module, inputs, path: Path, **kwargs) -> Path:
        import torch

        torch.export.save(torch.export.export(module.eval(), inputs, **kwargs), path)
        return path

    return save


@pytest.fixture(scope="session")
def conv_relu_cat(tmp_path_factory, save) -> tuple[Path, Path]:
    """A float program whose relu shares its quantisation with a negative input, and data for it."""
    import torch

    class ConvReluCat(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = torch.nn.Conv2d(4, 4, 3, padding=1), torch.nn.Conv2d(8, 4, 1)

        def forward(self, x, y):
            return self.last(torch.cat((torch.relu(self.first(x)), y), 1))

    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("model")
    shape, generator = (1, 4, 8, 8), np.random.default_rng(0)
    model = save(ConvReluCat(), (torch.rand(shape), torch.rand(shape)), folder / "net.pt2")
    samples = {name: generator.uniform(-1, 1, (3, *shape)).astype("float32") for name in "xy"}
    np.savez(folder / "data.npz", **samples)
    return model, folder / "data.npz"


@pytest.fixture
def files(conv_relu_cat, tmp_path) -> Files:
    (tmp_path / "out").mkdir()
    return Files(*conv_relu_cat, tmp_path / "out" / "net.pte")
