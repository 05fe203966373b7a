"""One quantising of one net, from the float net to the converted graph, with the comparison of both."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from copy import deepcopy
from typing import Any
from weakref import ref

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import Graph, GraphModule
from torch.utils._pytree import tree_leaves

from safe_arm.core.attributes import attribute, set_attribute
from safe_arm.core.errors import DoubtfulInputWarning, FloatProofWarning, SafeArmError
from safe_arm.core.exceptions import Caught, attempted
from safe_arm.core.float_comparison import (
    FLOAT_COMPARISON_KEY,
    Compared,
    FloatComparison,
    OutputFidelity,
    to_json,
)
from safe_arm.core.notes import write_note
from safe_arm.core.output_names import output_names
from safe_arm.quantizer.annotation.float_graphs import check_has_values
from safe_arm.quantizer.annotation.hold_out import copy_of
from safe_arm.quantizer.proof.fidelity import compared
from safe_arm.quantizer.proof.float_distance import difference
from safe_arm.quantizer.proof.float_net import (
    Call,
    FloatNet,
    Results,
    copies_of,
    results_of,
    set_state,
    state_kept,
)
from safe_arm.quantizer.proof.float_proof import FloatTrials
from safe_arm.quantizer.proof.made_up_inputs import made_up_inputs
from safe_arm.quantizer.proof.same_structure import Structure
from safe_arm.quantizer.training.norm_folding import folded_where_right
from safe_arm.quantizer.training.state_at_rest import StateLeft
from safe_arm.quantizer.training.trained_modes import switch_training

#: Number of calibration samples that are compared, and how many bytes of inputs and outputs are kept for them.
SAMPLES = 32
BYTES = 2**26
#: An output with less is warned of: the noise is a tenth of the signal, or half of the integers are others.
_POOR = 10.0
_POOR_AGREEMENT = 0.5
#: Key in ``meta`` of a graph module; torchao carries it from the float graph to the converted one.
_KEY = "safe_arm_float_run"


class DiffersError(SafeArmError):
    """The graph that is calibrated does not compute the net on a calibration sample.

    Attributes:
        call: the sample.
    """

    def __init__(self, mismatch: str, call: Call) -> None:
        super().__init__(mismatch)
        self.call = call


class FloatRun:
    """One net on its way through the quantiser.

    Attributes:
        original: the graph module that the user handed in.
        net: the net as it was exported.
        trials: calls of the net on which a transformed graph is compared with it.
        restarts: whether a calibration sample on which the graphs differ raises instead of being warned about.
        closes: whether the converted graph is compared as soon as it is there.
    """

    def __init__(
        self,
        model: GraphModule,
        calls: Sequence[Call] = (),
        *,
        folds: bool,
        restarts: bool = False,
        closes: bool = True,
    ) -> None:
        self.original = Original(model)
        self.net = FloatNet(model, folds=folds)
        check_has_values(model)
        self.trials = FloatTrials(self.net, (*calls, *made_up_inputs(model)))
        self.restarts = restarts
        self.closes = closes
        self._names = _names_of_outputs(model)
        # A branch of control flow is called flat.
        self._is_main = hasattr(model.graph._codegen, "pytree_info")
        self._structure: Structure | None = None
        self._state: StateLeft | None = None
        self._watched = False
        self._calls: list[tuple[Call, Results]] = []
        self._bytes = 0
        self._seen = self._proven = 0
        self._notes = [self.trials.note] if self.trials.note else []
        self._transformed = self._rounds = False
        model.meta[_KEY] = self

    def __deepcopy__(self, memo: dict[int, Any]) -> FloatRun:
        return self

    @property
    def is_fresh(self) -> bool:
        """True until the net is transformed."""
        return not self._transformed

    @property
    def is_prepared(self) -> bool:
        """True once torchao returns the graph that is calibrated or trained."""
        return self._watched

    def transformed(self, graph_module: GraphModule) -> None:
        """Take note of the graph that is going to be annotated."""
        self._transformed = True
        graph_module.meta[_KEY] = self

    def annotated(self, graph_module: GraphModule) -> None:
        """Take note of the graph that is going to be calibrated."""
        self._structure = Structure(graph_module, self.net.state)

    def written_to(self) -> list[str]:
        """Return the names of the user's tensors that were written into since the net was exported."""
        return self.original.written_to(self.net.state)

    def seen(self, model: GraphModule) -> None:
        """Go on with a model that torchao is about to return: watch the prepared one, compare the converted one.

        What is converted is trained no more.
        """
        if not self._transformed:
            return
        if not self._watched:
            self._watched = True
            if self.closes:
                self.original.restore(model, self.net.module.graph)
            self._watch(model)
            return
        if not self.net.folds:
            switch_training(model, False)
        if self.closes:
            if self._state is not None:
                self._state.give_back(model)
            self.compare(model)

    def _watch(self, prepared: GraphModule) -> None:
        if not self.net.folds:
            self._notes.append(
                "it was trained while it was quantised, so that the float net is another one"
            )
            self._structure = None
            return
        if self.closes:
            rest = self.net.rest_of(prepared)
            for name, value in copies_of(prepared, rest).items():
                set_attribute(prepared, name, value)
            self._state = StateLeft(rest)
            self._state.watch(prepared)
        if self._is_main and not self._notes:
            parts = list(prepared.modules())
            self.net.reset()
            self._rounds = any(hasattr(p, "activation_post_process") for p in parts)
            prepared.register_forward_pre_hook(self._before, with_kwargs=True)
            prepared.register_forward_hook(self._after, with_kwargs=True)

    def _before(
        self, module: GraphModule, args: tuple[Any, ...], keywords: Mapping[str, Any]
    ) -> None:
        """Keep a copy of a sample, which the net may write into."""
        module.meta[f"{_KEY}_call"] = attempted(self.called, args, keywords)

    def _after(
        self,
        module: GraphModule,
        args: tuple[Any, ...],
        keywords: Mapping[str, Any],
        outputs: object,
    ) -> None:
        """Compare what a sample gave."""
        call = module.meta.pop(f"{_KEY}_call", None)
        if isinstance(call, Call):
            self.calibrated(call, outputs)

    def called(self, args: tuple[Any, ...], keywords: Mapping[str, Any]) -> Call | None:
        """Return a copy of a calibration sample, if it is one to be compared."""
        index, self._seen = self._seen, self._seen + 1
        if index != len(self._calls) or index >= SAMPLES or self._bytes > BYTES:
            return None
        leaves = tree_leaves((args, keywords))
        is_traced = any(isinstance(leaf, FakeTensor) for leaf in leaves)
        if is_traced or torch.compiler.is_compiling():
            return None
        return Call(f"calibration sample {index}", args, keywords).own()

    def calibrated(self, call: Call, outputs: object) -> None:
        """Compare the outputs of the graph that is calibrated for a sample with those of the net."""
        expected = attempted(self.net.run, call)
        if isinstance(expected, Caught):
            return
        self._calls.append((call, expected))
        for leaf in tree_leaves((call.args, call.keywords, expected.outputs)):
            if isinstance(leaf, Tensor):
                self._bytes += leaf.nbytes
        if self._rounds:  # Its observers are fake quantisers, as those of 4 bits.
            return
        actual = Results(tree_leaves(outputs), {})
        mismatch = difference(self.net, call, actual, Results(expected.outputs, {}))
        if not mismatch:
            self._proven += 1
        elif self.restarts:
            raise DiffersError(f"{mismatch} ({call.name})", call)
        elif not self._notes:
            self._say(
                f"the graph that is calibrated does not compute the float net: {mismatch} ({call.name})"
            )

    def compare(self, converted: GraphModule) -> None:
        """Compare the converted graph with the net, and write the result on it."""
        if self._structure is not None:
            mismatch = self._structure.difference(converted)
            if mismatch:
                self._say(f"conversion changed what the net computes: {mismatch}")
        if not self.closes:
            self._compare_rest(converted)
        outputs: tuple[OutputFidelity, ...] = ()
        if self._calls:
            outputs = self._fidelity(converted)
        elif not self._notes:
            self._notes.append("no calibration sample was run")
        samples = len(self._calls) if outputs else 0
        for output in outputs:
            _warn_if_poor(output, samples)
        proven = len(self.trials) + self._proven
        note = "; ".join(self._notes)
        comparison = FloatComparison(outputs, samples, proven, note, shown=self._seen)
        text = Compared(to_json(comparison))
        text.samples = self._kept_samples()
        _write(converted, text)
        self._calls.clear()  # The others are the user's to keep.

    def _kept_samples(self) -> tuple[tuple[Any, ...], ...]:
        """Return the first and the last sample; nothing where the net has arguments by name, whose order may differ."""
        calls = [call for call, _ in (*self._calls[:1], *self._calls[1:][-1:])]
        return tuple(call.args for call in calls if not call.keywords)

    def _compare_rest(self, converted: GraphModule) -> None:
        """Compare the state with which the quantised graph begins with that of the net."""
        for name, value in self.net.rest_of(converted).items():
            if not torch.equal(attribute(converted, name), value):
                self._say(
                    f"state {name!r} of the quantised graph is not that of the float net"
                )

    def _fidelity(self, converted: GraphModule) -> tuple[OutputFidelity, ...]:
        actual, expected = [], []
        with state_kept(converted):
            set_state(converted, self.net.rest_of(converted))
            for call, of_net in self._calls:
                results = attempted(results_of, converted, call)
                if isinstance(results, Caught):
                    self._say(
                        f"the quantised graph cannot be run on {call.name}: {results.reason}"
                    )
                    return ()
                actual.append(results.outputs)
                expected.append(of_net.outputs)
        return compared(self._names, actual, expected)

    def _say(self, what: str) -> None:
        self._notes.append(what)
        warnings.warn(what, FloatProofWarning, stacklevel=4)


def _warn_if_poor(output: OutputFidelity, samples: int) -> None:
    """Say of an output what little of the float net is left in it."""
    ratio = output.sqnr
    share = output.agreement
    if ratio is not None and ratio < _POOR:
        left = f"{ratio:.1f} dB of the float net are left"
    elif share is not None and share < _POOR_AGREEMENT:
        left = f"{share:.0%} of the float net's values are left"
    else:
        return
    text = (
        f"{left} at {output.name} of the quantised graph, over {samples} calibration sample{'s' * (samples != 1)}: "
        "`safe-arm check --accuracy` shows which operators cost it"
    )
    warnings.warn(text, DoubtfulInputWarning, stacklevel=5)


class Original:
    """The graph module that the user handed in, with the tensors and modules it had.

    Attributes:
        tensors: its parameters and buffers by name.
    """

    def __init__(self, model: GraphModule) -> None:
        self._model = ref(model)
        self.tensors: dict[str, Tensor] = dict(model.named_parameters())
        self.tensors.update(model.named_buffers())
        self._members: dict[str, list[frozenset[str]]] = {}
        self._nested: dict[str, GraphModule] = {}
        for path, module in model.named_modules():
            self._members[path] = [frozenset(holder) for holder in _holders(module)]
            is_inner = any(path.startswith(f"{outer}.") for outer in self._nested)
            if path and isinstance(module, GraphModule) and not is_inner:
                self._nested[path] = copy_of(module)
        self._versions: dict[str, int] = {}
        for name, tensor in self.tensors.items():
            version = attempted(getattr, tensor, "_version")
            if isinstance(version, int):
                self._versions[name] = version

    def written_to(self, state: Collection[str]) -> list[str]:
        """Return the names of the tensors, those of the state apart, that were written into since."""
        names = []
        for name, version in self._versions.items():
            if name not in state and self.tensors[name]._version != version:
                names.append(name)
        return names

    def restore(self, prepared: GraphModule, graph: Graph) -> None:
        """Give the module copies of its graphs and its tensors back; the prepared one has its own."""
        model = self._model()
        if model is None or model is prepared:
            return
        for path, module in list(model.named_modules()):
            members = self._members.get(path, ())
            for holder, names in zip(_holders(module), members, strict=False):
                for name in holder.keys() - names:
                    del holder[name]
        for name, tensor in self.tensors.items():
            if attempted(attribute, model, name) is not tensor:
                set_attribute(model, name, tensor)
        for path, nested in self._nested.items():
            set_attribute(model, path, copy_of(nested))
        model.graph = deepcopy(graph)


def run_of(model: GraphModule, *, folds: bool) -> FloatRun:
    """Return the run of a graph module that is about to be transformed; a new one unless one was just begun.

    Of several quantisers that are composed, each transforms what the one before has, whose norms are folded already.
    """
    run = model.meta.get(_KEY)
    if isinstance(run, FloatRun):
        if run.is_fresh:
            return run
        if not run.is_prepared:
            folds = folds or run.net.folds
    return FloatRun(model, folds=folds)


def begun_and_folded(model: GraphModule) -> AbstractContextManager[None]:
    """Keep the net as it is before its batch norms are folded, and fold them where that is right."""
    run_of(model, folds=True)
    return folded_where_right(model)


def annotated(model: GraphModule) -> bool:
    """Take note of a graph that is going to be calibrated or trained; return True if it is calibrated, and of ours."""
    run = model.meta.get(_KEY)
    if not isinstance(run, FloatRun):
        return False
    run.annotated(model)
    return run.net.folds


def is_ours(model: GraphModule) -> bool:
    """Return whether a prepared or converted model is one of a safe quantiser."""
    return isinstance(model.meta.get(_KEY), FloatRun)


def seen(model: GraphModule) -> None:
    """Go on with a model that torchao is about to return, if it is one of ours."""
    run = model.meta.get(_KEY)
    if isinstance(run, FloatRun):
        run.seen(model)


def _holders(module: torch.nn.Module) -> tuple[dict[str, Any], ...]:
    """Return where a module keeps its parameters, buffers and modules."""
    return module._parameters, module._buffers, module._modules


def _names_of_outputs(model: GraphModule) -> list[str]:
    leaves = tree_leaves(model.graph.output_node().args[0])
    info = getattr(model.graph._codegen, "pytree_info", None)
    return output_names(info.out_spec if info else None, len(leaves))


def _write(graph_module: GraphModule, text: str) -> None:
    """Write a record on the first operator and on those that give the outputs, where export carries it along."""
    graph = graph_module.graph
    operators = [node for node in graph.nodes if node.op == "call_function"]
    for node in (*operators[:1], *graph.output_node().all_input_nodes):
        write_note(node, FLOAT_COMPARISON_KEY, text)
