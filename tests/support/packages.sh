#!/usr/bin/env bash
# The Debian packages that the tests need.
#   packages.sh install [COMMAND ...]   install what is lacking, these commands included, where root rights are at hand
#   packages.sh lacking                 say in one line what was not tested for want of a package
set -euo pipefail

verb=$1
shift
packages=()
untested=()
for command in "$@"; do
    command -v "$command" >/dev/null || packages+=("$command")
done
need() { # command, package, what is not tested without it
    command -v "$1" >/dev/null && return
    packages+=("$2")
    untested+=("$3 ($2)")
}
need chromium chromium "the page in a browser"
need flite flite "the voices of flite"
need systemd-analyze systemd "the systemd units"
# Debian keeps what `python3 -m venv` needs in a package apart.
[[ -e .venv ]] || "${PYTHON:-python3}" -c 'import ensurepip' 2>/dev/null || packages+=(python3-venv)
((${#packages[@]})) || exit 0

if [[ $verb == lacking ]]; then
    list=$(printf '%s, ' "${untested[@]}")
    printf 'Not tested: %s. To test it, too: sudo apt-get install %s && make test\n' "${list%, }" "${packages[*]}"
    exit
fi

as_root=(env DEBIAN_FRONTEND=noninteractive)
((EUID == 0)) || as_root=(sudo -n "${as_root[@]}")
apt() { "${as_root[@]}" apt-get -qq -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=120 -o Acquire::http::Timeout=20 "$@"; }
if ! command -v apt-get >/dev/null || ! "${as_root[@]}" true 2>/dev/null; then
    printf 'Debian packages cannot be installed from here; lacking: %s\n' "${packages[*]}"
# Where the index cannot be renewed, the one at hand may do. Nothing must be answered, so nothing is read.
elif ! { apt update || true; apt install --yes --no-install-recommends "${packages[@]}"; } </dev/null; then
    printf 'apt-get failed; lacking: %s\n' "${packages[*]}"
fi
