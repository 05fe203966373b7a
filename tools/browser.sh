#!/usr/bin/env bash
# Print the path of Chromium, installing it by apt if there is none. SAFE_ARM_BROWSER names another one.
set -euo pipefail
found() { command -v "${SAFE_ARM_BROWSER:-chromium}" || command -v chromium-browser || command -v google-chrome; }
found && exit 0
if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
  echo "no browser: install Chromium (on Debian, as root: apt-get install chromium), or name one in SAFE_ARM_BROWSER" >&2
  exit 1
fi
echo "installing chromium" >&2
apt-get update -qq >&2 && apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null
found
