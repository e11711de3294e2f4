# SPDX-License-Identifier: Apache-2.0
# `./dev setup`: installs the Debian packages of tools/setup/packages.txt that are missing. Sourced by ./dev, asks nothing.

# Packages of the named groups, one per line.
packages_of() {
  awk -v wanted=" $* " '/^\[/ { use = index(wanted, " " substr($0, 2, length($0) - 2) " ") } /^[a-z]/ && use' \
    tools/setup/packages.txt | sort -u
}

# Those of the packages on stdin that are not installed. One dpkg-query call, so that a finished setup costs nothing.
missing_packages() {
  local native
  native=$(dpkg --print-architecture)
  awk -v native="$native" '
    NR == FNR { if ($3 == "installed") have[$4] = 1; next }
    { name = $1; if (name !~ /:/) name = name ":" native }
    !(name in have) && !($1 ":all" in have)' \
    <(dpkg-query -W -f '${Status} ${Package}:${Architecture}\n') -
}

as_root() {
  if [[ $(id -u) == 0 ]]; then "$@"
  elif command -v sudo >/dev/null; then sudo "$@"
  else die "this needs root and there is no sudo; as root, run: $*"
  fi
}

apt() { as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=600 -o Dpkg::Use-Pty=0 "$@"; }

# The package lists have a lock of their own, for which apt-get does not wait by itself.
apt_update() {
  local try
  for try in 1 2 3 4 5 6; do
    if apt update; then return; fi
    say "The package lists could not be fetched (try $try of 6); waiting 10 s."
    sleep 10
  done
  die "apt-get update keeps failing; see its messages above."
}

install_packages() {
  say "Installing with apt-get:" "$@"
  [[ -z $(dpkg --audit 2>&1) ]] || as_root dpkg --configure -a  # an installation was interrupted
  if [[ " $* " == *:arm64* ]] && ! dpkg --print-foreign-architectures | grep -qx arm64; then
    as_root dpkg --add-architecture arm64
    apt_update
  fi
  mkdir -p build
  apt install --simulate "$@" >/dev/null 2>&1 || apt_update
  if apt install -y --no-install-recommends "$@" >build/setup.log 2>&1; then return; fi
  apt_update  # the lists were older than the archive
  apt install -y --no-install-recommends "$@" >build/setup.log 2>&1 && return
  tail -n 30 build/setup.log >&2
  die "apt-get could not install what is needed; the end of its messages is above, the rest in build/setup.log."
}

# True where cargo and rustc are at least as new as rust/Cargo.toml asks.
has_rust() {
  local wanted found
  wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' rust/Cargo.toml)
  found=$(rustc --version 2>/dev/null | cut -d' ' -f2)
  [[ -n $found ]] && command -v cargo >/dev/null && [[ $(printf '%s\n' "$wanted" "$found" | sort -V | head -n1) == "$wanted" ]]
}

# What Debian has may stand behind an older one on the PATH, or be newer than the package lists know.
setup_rust() {
  has_rust && return
  PATH=/usr/bin:$PATH
  has_rust && return
  # shellcheck disable=SC2046  # a list of names
  install_packages $(packages_of rust)
  has_rust && return
  apt_update
  # shellcheck disable=SC2046  # a list of names
  install_packages $(packages_of rust)
  has_rust || die "rust/Cargo.toml needs a newer Rust than $(rustc --version), the newest that apt-get finds; install it with rustup."
}

setup() {
  local groups=("$@") missing
  [[ ${#groups[@]} -gt 0 ]] || groups=(build)
  command -v dpkg-query >/dev/null ||
    die "only Debian is set up by this script; elsewhere install what tools/setup/packages.txt lists and use cmake --preset."
  missing=$(packages_of "${groups[@]}" | missing_packages)
  # shellcheck disable=SC2086  # a list of names
  [[ -z $missing ]] || install_packages $missing
  setup_rust
}
