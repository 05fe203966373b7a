"""The real tensors behind fake ones, which only torch's internals hold."""

from collections.abc import Collection

from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor


def originals(fakes: Collection[FakeTensor]) -> dict[int, Tensor]:
    """Return, by ``id`` of the fake, the real tensor each fake tensor was made from, as far as its mode holds it.

    ExecuTorch hands the partitioner a program with fake parameters (exir/program/_fake_program.py). The fake mode
    holds the real ones by identity, including those that were lifted after the last hook with a real program.
    """
    ids = set(map(id, fakes))
    real_tensors: dict[int, Tensor] = {}
    for mode in {fake.fake_mode for fake in fakes}:
        try:
            converter = mode.fake_tensor_converter.meta_converter
            numbers = list(converter.describer.lookup_tensor.items())
            fake_by_number = converter.tensor_memo
        except AttributeError:
            continue  # Another version of torch may keep this elsewhere.
        for real, number in numbers:
            fake = fake_by_number.get(number)
            if id(fake) in ids:
                real_tensors[id(fake)] = real
    return real_tensors
