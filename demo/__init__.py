"""A U-Net denoiser exported through ExecuTorch's stock Arm classes and through safe_arm: ``python -m demo``."""
