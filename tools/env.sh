#!/usr/bin/env bash
# Print the interpreter of a lane's environment, building it first if need be.
#
#   tools/env.sh LANE [PIN ...]      LANE is a file name in constraints/, without .txt; users.txt is for users, no lane.
#                                    A PIN, PACKAGE==VERSION or a wheel, takes the place of the lane's version, in an environment of its own.
#
# An environment lives outside the checkout, keyed by the hash of its constraint file and those that includes, so that clones share it and a
# changed pin makes a new one. safe_arm itself is installed from this checkout, editable: the last clone to ask wins.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
lanes=$(ls "$root/constraints" | grep -v '^users\.txt$' | sed 's/\.txt$//' | xargs)
lane=${1:?usage: tools/env.sh LANE, one of: $lanes}
shift
pins=$root/constraints/$lane.txt
[[ " $lanes " = *" $lane "* ]] || { echo "no lane '$lane'; accepted: $lanes" >&2; exit 2; }
closure=$(cd "$root/constraints" && cat "$lane.txt" $(sed -n 's/^-r //p' "$lane.txt"))
key=$(echo "$closure" | sha256sum | cut -c1-12)
cache=${SAFE_ARM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/safe_arm}
mkdir -p "$cache"
if [ $# -gt 0 ]; then
  for pin in "$@"; do
    case $pin in
      *.whl) pin=$(cd "$(dirname "$pin")" && pwd)/${pin##*/}; name=${pin##*/}; name=${name%%-*} ;;
      *==*) name=${pin%%==*} ;;
      *) echo "'$pin' is no PACKAGE==VERSION and no wheel" >&2; exit 2 ;;
    esac
    closure=$(echo "$closure" | grep -v '^-r ' | grep -vi "^${name//[-_]/[-_]}=="; echo "$pin")
  done
  wheels=$(echo "$closure" | sed -n '/\.whl$/p' | while read -r wheel; do sha256sum "$wheel"; done)
  key=$(echo "$closure$wheels" | sha256sum | cut -c1-12)
  pins=$cache/$lane-$key.txt
  echo "$closure" > "$pins"
fi
env=$cache/$lane-$key
if command -v flock > /dev/null; then
  exec 9> "$env.lock"
  flock 9
else  # macOS: a directory is made by one process only
  until mkdir "$env.lock.d" 2> /dev/null; do echo "waiting for another to remove $env.lock.d" >&2; sleep 5; done
  trap 'rmdir "$env.lock.d"' EXIT
fi
if [ ! -f "$env/complete" ]; then
  echo "building the environment of lane '$lane' (once; minutes)" >&2
  rm -rf "$env"
  "${PYTHON:-python3}" -m venv "$env"
  # The pins are the whole closure; --no-deps, because the seeds' lane is a combination its packages' metadata forbids.
  "$env/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps -r "$pins" 2> >(grep -v '^WARNING: Location' >&2)
  touch "$env/complete"
fi
before=$(cat "$env/checkout" 2>/dev/null || true)
if [ "$before" != "$root" ]; then
  [ -z "$before" ] || [ ! -d "$before" ] || echo "lane '$lane' had the safe_arm of $before; it has this checkout's now" >&2
  "$env/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e "$root" 2> >(grep -v '^WARNING: Location' >&2)
  echo "$root" > "$env/checkout"
fi
echo "$env/bin/python"
