"""One unit is judged by the tensors that the delegate has for its values."""

import torch
from lowering import PROFILES
from proving import delegates_of, quantized
from small import Lambda, image

from safe_arm.verification.culprits import find_culprits
from safe_arm.verification.placing import run_tapped
from safe_arm.verification.reference_model import run_tosa
from safe_arm.verification.stimuli import stimuli


def test_a_value_moved_before_it_is_clamped_is_no_culprit():
    """Passes put a channel shuffle ahead of the relu: its tensor holds the right codes in another order."""
    net = Lambda(lambda m, x: torch.relu(m.conv(x)).reshape(1, 2, 2, 8, 8).transpose(1, 2).reshape(1, 4, 8, 8))
    profile = f"{PROFILES[0]}+int16"
    (shuffled,) = delegates_of(quantized(net, image(), profile, wide=True), image(), profile)
    for stimulus in stimuli(shuffled.program):
        computed = run_tapped(shuffled, stimulus.inputs, run_tosa)
        assert find_culprits(shuffled, stimulus.inputs, *computed).culprits == ()
