import pytest
from bundling import one_softmax, shipped, two_delegates


@pytest.fixture(scope="session")
def between(tmp_path_factory):
    return shipped("tosa", two_delegates(), tmp_path_factory.mktemp("between") / "net")


@pytest.fixture(scope="session")
def alone(tmp_path_factory):
    return shipped("tosa", one_softmax(), tmp_path_factory.mktemp("alone") / "net", quantised=False)


@pytest.fixture(scope="session")
def ethos_u(tmp_path_factory):
    return shipped("ethos-u55-128", two_delegates(), tmp_path_factory.mktemp("ethos") / "net")


@pytest.fixture(scope="session")
def vgf(tmp_path_factory):
    return shipped("vgf", two_delegates(), tmp_path_factory.mktemp("vgf") / "net")
