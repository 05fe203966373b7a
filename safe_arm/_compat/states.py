"""The releases that treat the state of a net as a constant."""

from __future__ import annotations

from safe_arm._compat.tested_releases import executorch_version, parse

#: Before 1.5 ``tag_constant_data`` gives a delegate each buffer whose new value is not computed by one of its readers.
STATES_ARE_CONSTANTS = parse(executorch_version()) < (1, 5)
