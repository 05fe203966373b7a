import pytest
from bundling import Alone, Between, shipped


@pytest.fixture(scope="session")
def between(tmp_path_factory):
    return shipped("tosa", Between(), tmp_path_factory.mktemp("between") / "net")


@pytest.fixture(scope="session")
def alone(tmp_path_factory):
    return shipped("tosa", Alone(), tmp_path_factory.mktemp("alone") / "net", quantised=False)


@pytest.fixture(scope="session")
def ethos_u(tmp_path_factory):
    return shipped("ethos-u55-128", Between(), tmp_path_factory.mktemp("ethos") / "net")


@pytest.fixture(scope="session")
def vgf(tmp_path_factory):
    return shipped("vgf", Between(), tmp_path_factory.mktemp("vgf") / "net")
