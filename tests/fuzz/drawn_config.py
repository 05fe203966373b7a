"""How the nets of generators that know nothing of quantisation are quantised and lowered."""

import random

from tests.fuzz.cases import Config


def drawn_config(seed: int) -> Config:
    """Return one of the usual configurations, always the same one for a seed."""
    draw = random.Random(seed)
    profile = draw.choice(("INT", "INT+FP", "INT+FP", "FP"))
    numbers = "float" if profile == "FP" else draw.choice(("int8", "int8", "int8-127", "a16w8"))
    return Config(profile, numbers, draw.choice(("reject", "propagate")))
