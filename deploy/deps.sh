#!/usr/bin/env bash
# Installs the Debian packages postrider needs.
#
#   deps.sh               everything: build, tests, lint, fuzzing
#   deps.sh --if-missing  what build and tests need, only if something of it is missing
#   deps.sh --missing     print what --if-missing would install
#   deps.sh --has-fuzzer  exit 0 when clang can link a fuzzer
#
# Works as root and as a user with sudo. Starts no PostgreSQL: the project makes private ones.
set -euo pipefail

BUILD="gcc libc6-dev make pkg-config libpq-dev libcurl4-openssl-dev libjansson-dev libev-dev
    libmicrohttpd-dev libssl-dev"
# kannel: a gateway we did not write, for tests and demo-kannel; no service of it is started.
TEST="libcmocka-dev libtap-parser-sourcehandler-pgtap-perl python3 python3-pytest python3-psycopg2
    kannel kannel-extras"
EXTRA="clang clang-format clang-tidy cppcheck shellcheck python3-pyflakes pgbouncer"

installed() {
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

known() {
    apt-cache show "$1" >/dev/null 2>&1
}

# The server that is there, else 15, else the release's default. 15 is the oldest we support.
postgres_version() {
    local v
    for v in 18 17 16 15; do
        if [ -x "/usr/lib/postgresql/$v/bin/initdb" ]; then
            echo "$v"
            return
        fi
    done
    if ! known postgresql; then
        echo 15
        return
    fi
    if known postgresql-15; then
        echo 15
        return
    fi
    apt-cache depends postgresql | sed -n 's/.*Depends: postgresql-\([0-9]*\)$/\1/p' | head -n 1
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        echo "cannot install packages: not root, and sudo is not there; as root, run: $*" >&2
        exit 1
    fi
}

missing() {
    local p
    for p in "$@"; do
        installed "$p" || printf '%s ' "$p"
    done
}

# A fresh postgresql-N would make and start a cluster on 5432, and pgbouncer a daemon. Nobody asked
# for either: switch that off for this installation and leave the machine's own rules as they were.
CREATECLUSTER=/etc/postgresql-common/createcluster.conf
POLICY=/usr/sbin/policy-rc.d
apt_install() {
    local cluster='' policy='' ok=0
    if ! installed postgresql-common && [ ! -e "$CREATECLUSTER" ]; then
        cluster=1
        as_root mkdir -p "${CREATECLUSTER%/*}"
        echo 'create_main_cluster = false' | as_root tee "$CREATECLUSTER" >/dev/null
    fi
    if [ ! -e "$POLICY" ]; then
        policy=1
        printf '#!/bin/sh\nexit 101\n' | as_root tee "$POLICY" >/dev/null
        as_root chmod 755 "$POLICY"
    fi
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        -o Dpkg::Options::=--force-confold -o Dpkg::Use-Pty=0 "$@" || ok=$?
    if [ -n "$policy" ]; then
        as_root rm -f "$POLICY"
    fi
    if [ -n "$cluster" ] && [ -e "$CREATECLUSTER.ucf-dist" ]; then
        as_root mv "$CREATECLUSTER.ucf-dist" "$CREATECLUSTER"
    fi
    return "$ok"
}

install_missing() {
    local want p
    read -ra want <<<"$(missing "$@")"
    if [ ${#want[@]} -eq 0 ]; then
        return
    fi
    echo "installing: ${want[*]}"
    for p in "${want[@]}"; do
        if ! known "$p"; then
            as_root apt-get update -q
            break
        fi
    done
    apt_install "${want[@]}"
}

has_fuzzer() {
    local dir r
    command -v clang >/dev/null || return 1
    dir=$(mktemp -d)
    echo 'int LLVMFuzzerTestOneInput(const unsigned char *d, unsigned long n)
          { (void)d; (void)n; return 0; }' >"$dir/f.c"
    clang -fsanitize=fuzzer,address -o "$dir/f" "$dir/f.c" 2>/dev/null && r=0 || r=1
    rm -rf "$dir"
    return "$r"
}

main() {
    local v sets
    if [ "${1:-}" = --has-fuzzer ]; then
        has_fuzzer
        return
    fi
    if ! command -v dpkg-query >/dev/null; then
        echo "this is not Debian: install the counterparts of $BUILD $TEST postgresql pgtap" >&2
        return 0
    fi
    if [ "${1:-}" != --missing ] && ! known gcc && [ -n "$(missing gcc postgresql-15)" ]; then
        as_root apt-get update -q # no package lists at all: a fresh container
    fi
    v=$(postgres_version)
    sets="$BUILD $TEST postgresql-$v postgresql-$v-pgtap"
    case ${1:-} in
    --missing)
        # shellcheck disable=SC2086
        missing $sets
        ;;
    --if-missing)
        # shellcheck disable=SC2086
        install_missing $sets
        ;;
    '')
        # shellcheck disable=SC2086
        install_missing $sets $EXTRA
        if ! has_fuzzer; then
            # clang's fuzzer and sanitizers are a package of their own, named after its version.
            install_missing "libclang-rt-$(clang -dumpversion | cut -d. -f1)-dev"
        fi
        ;;
    *)
        echo "usage: deps.sh [--if-missing | --missing | --has-fuzzer]" >&2
        return 2
        ;;
    esac
}

main "$@"
