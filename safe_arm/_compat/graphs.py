"""The real tensors behind fake ones, which only torch's internals know."""

from collections.abc import Collection

from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor


def originals(fakes: Collection[FakeTensor]) -> dict[int, Tensor]:
    """Return, by ``id`` of the fake, the real tensor each fake tensor was made from, as far as its mode remembers.

    ExecuTorch hands the partitioner a program with fake parameters (exir/program/_fake_program.py). The fake mode
    knows the real ones by identity, those included that were lifted after the last hook that shows a real program.
    """
    wanted = {id(fake) for fake in fakes}
    found: dict[int, Tensor] = {}
    for mode in {fake.fake_mode for fake in fakes}:
        try:
            converter = mode.fake_tensor_converter.meta_converter
            known = list(converter.describer.lookup_tensor.items())
            pairs = [
                (converter.tensor_memo.get(number), real) for real, number in known
            ]
        except AttributeError:  # Torch's own; another version may keep this elsewhere.
            continue
        found.update({id(fake): real for fake, real in pairs if id(fake) in wanted})
    return found
