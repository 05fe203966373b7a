#!/usr/bin/env bash
# Install the Vulkan loader and Mesa's software driver by apt, if there is no loader or no driver yet.
set -euo pipefail
packages=()
ldconfig -p 2>/dev/null | grep -q 'libvulkan\.so\.1' || packages+=(libvulkan1)
drivers=${VK_DRIVER_FILES:-${VK_ICD_FILENAMES:-}}
if [ -z "$drivers" ]; then
  drivers=$(ls /usr/share/vulkan/icd.d/*.json /usr/local/share/vulkan/icd.d/*.json /etc/vulkan/icd.d/*.json 2>/dev/null || true)
fi
[ -n "$drivers" ] || packages+=(mesa-vulkan-drivers)
[ ${#packages[@]} -gt 0 ] || exit 0
if ! command -v apt-get >/dev/null; then
  echo "no Vulkan: install the loader and a driver (on Debian: ${packages[*]}) with this system's package manager" >&2
  exit 1
fi
if [ "$(id -u)" != 0 ]; then
  echo "no Vulkan: run as root once: apt-get install ${packages[*]}" >&2
  exit 1
fi
echo "installing ${packages[*]}" >&2
apt-get update -qq && apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
