from importlib.util import find_spec

#: The older lanes replay what the main one draws.
collect_ignore_glob = [] if find_spec("hypothesis") and find_spec("nnsmith") else ["test_*.py"]
