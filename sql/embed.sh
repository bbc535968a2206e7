#!/bin/sh
# Writes C source with the given files as byte arrays, so that the binary carries its
# migrations and its page. Byte-exact; a zero byte follows each array and is not counted.
#
#   embed.sh migrations FILE...   the table of worker/cli/migrations.h
#   embed.sh page [FILE]          the array of worker/web/page.h
set -eu
LC_ALL=C
export LC_ALL

bytes() {
    od -An -v -tx1 "$1" | sed 's/ \([0-9a-f][0-9a-f]\)/0x\1,/g; s/^/    /'
    echo "    0x00};"
}

what=$1
shift
case $what in
migrations)
    echo '#include "worker/cli/migrations.h"'
    n=0
    for file; do
        echo "static const unsigned char sql_${n}[] = {"
        bytes "$file"
        n=$((n + 1))
    done
    echo 'const struct migration migrations[] = {'
    n=0
    for file; do
        name=$(basename "$file" .sql)
        version=$(expr "$name" : '0*\([0-9]*\)')
        echo "    {$version, \"$name\", sql_$n, sizeof(sql_$n) - 1},"
        n=$((n + 1))
    done
    [ "$n" -gt 0 ] || echo '    {0, "", (const unsigned char *)"", 0},'
    echo '};'
    echo "const size_t migrations_count = $n;"
    ;;
page)
    echo '#include "worker/web/page.h"'
    echo 'const unsigned char web_index[] = {'
    bytes "${1:-/dev/null}"
    echo 'const size_t web_index_len = sizeof(web_index) - 1;'
    ;;
*)
    echo "embed.sh: unknown kind \"$what\"" >&2
    exit 2
    ;;
esac
