#!/usr/bin/env bash
# Checks the sources without running them. Every complaint names file, line and reason.
#
#   lint.sh                 all rules
#   lint.sh RULE...         only these: format tidy cppcheck shell python headers rules
#   lint.sh --format        rewrite the C files in the project's format
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

JOBS=$(nproc)
STD=(-std=c17 -D_GNU_SOURCE -Wall -Wextra -Wpedantic -Werror -I.
    '-DPOSTRIDER_PROVIDER_DIR="/lint"' '-DPOSTRIDER_VERSION="lint"')
read -ra SYSTEM <<<"$(pkg-config --cflags-only-I libpq libcurl jansson libmicrohttpd |
    sed 's/-I/-isystem/g')"
failed=()

c_files() { # FOLDER...: C sources and headers, NUL between
    find "$@" \( -name '*.c' -o -name '*.h' \) -print0 2>/dev/null | sort -z
}

need() {
    command -v "$1" >/dev/null || {
        echo "$1 is not installed: make deps" >&2
        return 1
    }
}

# Runs one rule, shows its name, and remembers a failure so that the other rules still run.
rule() {
    echo "== $1"
    "rule_$1" || failed+=("$1")
}

rule_format() {
    need clang-format || return 1
    # One line a file is enough; `make format` mends them all.
    ! c_files worker providers tests | xargs -0 -r clang-format --dry-run 2>&1 |
        sed -n 's/^\([^ ]*:[0-9]*\):[0-9]*: \(warning\|error\).*/\1: not in the format of .clang-format/p' |
        sort -s -u -t: -k1,1 | grep .
}

# clang-tidy is slow, so a file whose preprocessed text passed once is not read again.
tidy_one() {
    local file=$1 key out
    key=$( { cat .clang-tidy; clang -E -C "${@:2}" "$file" 2>&1; } | sha256sum | cut -d' ' -f1)
    [ -e "build/lint/tidy/$key" ] && return 0
    out=$(clang-tidy --quiet "$file" -- "${@:2}" 2>/dev/null) && [ -z "$out" ] && {
        : >"build/lint/tidy/$key"
        return 0
    }
    # The reasons only; LINT_VERBOSE=1 shows the path that leads there.
    out=${out//"$PWD/"/}
    if [ -n "${LINT_VERBOSE:-}" ]; then
        echo "$out"
    else
        grep -E '^[^ ]+:[0-9]+:[0-9]+: (error|warning):' <<<"$out" || echo "$file:1: clang-tidy failed"
    fi
    return 1
}

rule_tidy() {
    need clang-tidy || return 1
    mkdir -p build/lint/tidy
    export -f tidy_one
    # shellcheck disable=SC2016
    find worker providers -name '*.c' -print0 | sort -z |
        xargs -0 -r -P "$JOBS" -I{} bash -c 'tidy_one "$@"' tidy {} \
            -include tests/lint/analyzer.h "${STD[@]}" "${SYSTEM[@]}"
}

rule_cppcheck() {
    local found
    need cppcheck || return 1
    mkdir -p build/lint/cppcheck
    mapfile -d '' found < <(find worker providers tests/fuzz -name '*.c' -print0)
    [ ${#found[@]} -gt 0 ] || return 0
    # Leaks are the sanitizers' job: cppcheck does not know the cleanup attribute.
    cppcheck --quiet --std=c11 --enable=warning,performance,portability --inline-suppr \
        --error-exitcode=1 --template='{file}:{line}: {message} ({id})' -j "$JOBS" \
        --suppress=missingIncludeSystem --suppress=missingInclude --suppress=unmatchedSuppression --suppress=readdirCalled \
        --suppress=memleak --suppress=resourceLeak \
        --cppcheck-build-dir=build/lint/cppcheck --library=posix -D_GNU_SOURCE -I. "${found[@]}"
}

rule_shell() {
    need shellcheck || return 1
    { find . -path ./build -prune -o -path ./.git -prune -o -name '*.sh' -print0
      printf '%s\0' .ci/run; } | xargs -0 shellcheck --format=gcc
}

rule_python() {
    local found ok=0
    mapfile -d '' found < <(find tests deploy -name '*.py' -print0 | sort -z)
    /usr/bin/python3 - "${found[@]}" <<'PY' || ok=1
import ast, sys
bad = 0
for name in sys.argv[1:]:
    try:
        ast.parse(open(name, encoding="utf-8").read(), name)
    except SyntaxError as e:
        print(f"{name}:{e.lineno}: {e.msg}")
        bad = 1
sys.exit(bad)
PY
    if /usr/bin/python3 -c 'import pyflakes' 2>/dev/null; then
        /usr/bin/python3 -m pyflakes "${found[@]}" || ok=1
    fi
    return "$ok"
}

# Each header compiles alone, under both compilers.
header_alone() {
    local header=$1 cc ok=0
    for cc in gcc clang; do
        printf '#include "%s"\nextern int lint_not_empty;\n' "$header" |
            "$cc" "${@:2}" -fsyntax-only -x c - 2>&1 | sed "s|^|$cc: |" | grep . && ok=1
    done
    if [ "$ok" -ne 0 ]; then
        echo "$header:1: does not compile alone" >&2
    fi
    return "$ok"
}

rule_headers() {
    need clang || return 1
    export -f header_alone
    # shellcheck disable=SC2016
    find worker providers -name '*.h' -print0 | sort -z |
        xargs -0 -r -P "$JOBS" -I{} bash -c 'header_alone "$@"' header {} "${STD[@]}" "${SYSTEM[@]}"
}

rule_rules() {
    /usr/bin/python3 tests/lint/rules.py
}

if [ "${1:-}" = --format ]; then
    c_files worker providers tests | xargs -0 -r clang-format -i
    exit
fi
for name in "${@:-format}"; do
    declare -F "rule_$name" >/dev/null || {
        echo "lint.sh: no rule \"$name\"" >&2
        exit 2
    }
done
if [ $# -eq 0 ]; then
    set -- format rules headers shell python cppcheck tidy
fi
for name; do
    rule "$name"
done
if [ ${#failed[@]} -gt 0 ]; then
    echo "lint: ${failed[*]} failed"
    exit 1
fi
echo "lint: clean"
