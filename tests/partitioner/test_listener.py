"""A listener hears of trials, proofs and what ships, in order, and one that does nothing changes nothing."""

from contextlib import contextmanager

from lowering import delegates
from prepared import prepared

from safe_arm.partitioner.listener import Listener


class Heard(Listener):
    def __init__(self):
        self.of = []

    @contextmanager
    def counting(self, name, *numbers):
        self.of.append((name, *numbers))
        yield lambda: self.of.append(name)

    def trying(self, delegates):
        return self.counting("tried", delegates)

    def proving(self, macs, seconds, runs):
        assert macs > 0
        assert seconds > 0
        return self.counting("proven", runs)

    def shipped(self, method, delegates):
        self.of.append((method, len(delegates)))


def test_it_hears_of_each_delegate_in_order():
    heard = Heard()
    net = prepared(lambda m, x: m.conv(m.conv(x).i0()))
    manager = net.lowered(net.partitioner(listener=heard))
    assert heard.of[0] == ("tried", 2)
    assert heard.of[-1] == ("forward", 2)
    assert heard.of.count("tried") == 2
    proofs = [each for each in heard.of if isinstance(each, tuple) and each[0] == "proven"]
    assert proofs
    assert heard.of.count("proven") == sum(runs for _, runs in proofs)
    assert delegates(manager) == delegates(net.lowered(net.partitioner()))
