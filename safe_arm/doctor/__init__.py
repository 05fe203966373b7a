"""The state of this machine: tools, versions, and the known issues of the installed packages."""
