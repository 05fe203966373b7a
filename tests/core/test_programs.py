"""One map of what the placeholders of a program hold."""

import torch
from lowering import PROFILES, lower, quantize, tosa
from small import Built, Lambda, image

from safe_arm import SafeArmPartitioner, verify
from safe_arm.core.programs import constant_placeholders, held_names, placeholder_values, user_outputs
from safe_arm.verification.reference_model import run_lowered

PARTS = {"weight": torch.nn.Parameter(torch.ones(4, 1, 1)), "mean": torch.zeros(4, 1, 1)}
HELD = Built(lambda m, x, y: x * m.weight - m.mean + torch.tensor([3.0]) * y, **PARTS)


def test_every_placeholder_has_its_tensor_in_order():
    program = torch.export.export(HELD, (*image(), *image(1)))
    assert set(held_names(program).values()) == {"weight", "mean", "lifted_tensor_0"} | set(program.constants)
    assert constant_placeholders(program) == held_names(program).keys()
    assert not constant_placeholders(program) & set(program.graph_signature.user_inputs)
    state = {**program.constants, **program.state_dict}
    values = placeholder_values(program, state, (*image(), *image(1)))
    placeholders = [node for node in program.graph.nodes if node.op == "placeholder"]
    assert list(values) == placeholders
    assert [tuple(value.shape) for value in values.values()] == [tuple(node.meta["val"].shape) for node in placeholders]
    assert not any(value.requires_grad for value in values.values())
    x, y = (values[node] for node in placeholders if node.name in program.graph_signature.user_inputs)
    assert torch.equal(x, image()[0])
    assert torch.equal(y, image(1)[0])


def test_a_token_is_an_empty_tensor_and_no_output_of_the_user_s():
    """An inverse checks its result, an operator with an effect, which a token keeps in order."""
    net = Lambda(lambda m, x: torch.linalg.inv(x) * 2)
    inputs = (torch.eye(3)[None] * 2 + 0.1,)
    manager = lower(quantize(net, inputs, tosa(PROFILES[0])), inputs, SafeArmPartitioner(tosa(PROFILES[0])))
    program = manager.exported_program()
    values = list(placeholder_values(program, {}, inputs).values())
    assert [tuple(each.shape) for each in values] == [(0,), (1, 3, 3)]
    outputs = user_outputs(program, run_lowered(program, inputs))
    assert [tuple(each.shape) for each in outputs] == [(1, 3, 3)]
    assert verify(manager, [inputs], reference=quantize(net, inputs, tosa(PROFILES[0]))).first_wrong is None
