"""A script of stock ExecuTorch alone for everything refused or demoted."""
