"""The lane that uses the installed wheel sees what is wrong with it."""

import sys

import pytest
import wheel_lane

GOOD = "ok for vgf, tosa, ethos-u\nversions  python 3.11.7\n"
UNTESTED = GOOD.replace("\n", "; not tested with torch 2.14.0\n", 1)


@pytest.fixture
def lane(tmp_path):
    """A lane in which nothing is run: what it would print, and the programs that it would leave."""

    class Canned(wheel_lane.Lane):
        place = "/x/lib/python3.11/site-packages/safe_arm/__init__.py\n"
        doctor = GOOD
        programs = wheel_lane.TARGETS

        def run(self, *arguments):
            if "export" in arguments:
                (self.folder / "exported").mkdir()
                for target in self.programs:
                    (self.folder / "exported" / f"net-{target}.pte").touch()
            return self.doctor if "doctor" in arguments else self.place

    return Canned(tmp_path, tmp_path)


def test_a_wheel_that_is_right(lane, capsys):
    wheel_lane.check(lane)
    assert "versions  python 3.11.7" in capsys.readouterr().out
    assert "torch.export.save" in (lane.folder / "net.py").read_text()


@pytest.mark.parametrize(
    ("spoilt", "says"),
    [
        pytest.param({"place": "/checkout/safe_arm/__init__.py\n"}, "is not the wheel's: /checkout/", id="checkout"),
        pytest.param({"doctor": "not ok: Vela is broken\n"}, "or untested:\nnot ok: Vela", id="broken"),
        pytest.param({"doctor": UNTESTED}, "untested:\nok for vgf", id="untested"),
        pytest.param({"programs": ("tosa", "vgf")}, "there is net-tosa.pte, net-vgf.pte", id="a target"),
        pytest.param({"programs": ()}, "there is nothing", id="all targets"),
    ],
)
def test_a_wheel_that_is_not(lane, spoilt, says):
    vars(lane).update(spoilt)
    with pytest.raises(SystemExit, match=r"(?s).") as ended:
        wheel_lane.check(lane)
    assert says in ended.value.code


def test_a_command_that_fails_ends_the_lane_with_what_it_printed(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    lane = wheel_lane.Lane(tmp_path, tmp_path)
    assert lane.run("-c", "print('well')") == "well\n"
    with pytest.raises(SystemExit) as ended:
        lane.run("-c", "import sys; print('before'); sys.exit('why')")
    assert ended.value.code.startswith("exit status 1 of: ")
    assert ended.value.code.endswith("\nbefore\nwhy\n")
