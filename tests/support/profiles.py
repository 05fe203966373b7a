"""The profiles of quantised nets that most tests run in."""

PROFILES = ("TOSA-1.0+INT", "TOSA-1.0+INT+FP")
