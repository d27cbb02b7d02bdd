#!/bin/sh
# The manual pages: every command has one, the page of the schema has every table, view and column, that
# of the header every member, its example records what it says; and groff finds nothing to complain of.
. "${abs_top_srcdir:?}/tests/testlib.sh"
cd "$tmp" || exit 99
text() { sed 's/\\-/-/g; s/\\f[A-Z]//g; s/\\&//g; s/\\e/\\/g' "$1"; }

# --- neartie-sql(5) ---
cat "$abs_top_srcdir/sql/schema.sql" "$abs_top_srcdir/sql/views.sql" | sqlite3 schema.db
sqlite3 schema.db "SELECT m.name || '.' || c.name FROM sqlite_schema AS m, pragma_table_info(m.name) AS c
    WHERE m.type IN ('table', 'view') AND m.name NOT LIKE 'sqlite%'" | LC_ALL=C sort >schema.txt
text "$abs_top_builddir/sql/neartie-sql.5" | awk '
    /^\.SS / { name = $2 }
    /^\.TP/ { getline; print name "." $2 }
    /^Columns:/ { columns = 1; next }
    columns && /^\.BR/ { print name "." $2; next }
    { columns = 0 }' | LC_ALL=C sort >page.txt
ok "the schema has its tables" test "$(wc -l <schema.txt)" -gt 200
is "neartie-sql(5) has every table and view, every column, and no other" "$(diff schema.txt page.txt)" ""
is "each of them says what it is" "$(text "$abs_top_builddir/sql/neartie-sql.5" |
    awk '/^\.SS/ { name = $2; getline; if (/^\./ || /^$/) print name }' | xargs)" ""

# --- a page for each command ---
commands=$("$neartie" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p')
ok "there are commands" test "$(echo "$commands" | wc -l)" -gt 15
if grep -q '^HELP2MAN = .' "$abs_top_builddir/Makefile"; then
    for command in $commands; do
        page=$abs_top_builddir/collector/neartie-$command.1
        "$neartie" "$command" --help | grep -o -e '--[a-z][a-z-]*' | sort -u >options.txt
        is "neartie-$command(1) has every option" "$(text "$page" | grep -o -e '--[a-z][a-z-]*' | sort -u |
            diff options.txt -) $(grep -c "^neartie-$command " "$page")" " 1"
    done
else
    skip "a page for each command" "help2man is not installed"
fi
is "neartie(1) names every command" "$(for command in $commands; do
    text "$abs_top_srcdir/collector/neartie.1" | grep -qE "^\.(B|BR|BI) $command( |$)" || echo "$command"
done)" ""

# --- probe.h(3) ---
header=$abs_top_srcdir/shim/probe.h page=$abs_top_srcdir/shim/probe.h.3
text "$page" >page.txt
# Members of its structures and functions of its table, enumerators, macros.
{
    sed -n '/^struct/,/^}/p' "$header" | sed 's|/\*.*||' |
        sed -nE 's/^    [a-z].*\(\*([a-z_]+)\)\(.*/\1/p; s/^    [a-z][a-z0-9_ *]*[ *]([a-z_]+);.*/\1/p'
    grep -oE 'PROBE_[A-Z0-9]+ = [0-9]' "$header" | cut -d' ' -f1
    sed -nE 's/^#define (PROBE_[A-Z_]*[A-Z])[ (].*/\1/p' "$header" | grep -v _STR
} | sort -u >names.txt
ok "the header's names are found" test "$(wc -l <names.txt)" -gt 35
is "probe.h(3) has every one" "$(while read -r name; do
    grep -qE "(^|[^a-zA-Z_])$name([^a-zA-Z_]|$)" page.txt || echo "$name"
done <names.txt)" ""
sed -n '/^\.EX/,/^\.EE/p' page.txt | grep -v '^\.E' >example.c
ok "its example compiles" "${CC:-gcc}" -Wall -Wextra -Werror -Wno-missing-field-initializers -I"$abs_top_srcdir/shim" \
    -o example example.c
if [ "$SANITIZE" = no ]; then
    LD_PRELOAD=$probe ./example
    is "and records what it says" "$? $(sqlite3 run.db "SELECT engine, label, pos, top1, margin, emitted_token FROM runs
        JOIN arms USING (run_id) JOIN logits USING (arm_id)") $(./example; echo $?)" "0 example 1|decode|0|1|0.25|1 1"
else
    skip "and records what it says" "a sanitizer's library must come first"
fi
is "its hooks are listed" "$("$neartie" inspect example --format csv | sed 1d | cut -d, -f1 | xargs)" \
    "run_setting logits forward_end token"

# --- all of them ---
if command -v groff >/dev/null; then
    for page in "$abs_top_srcdir"/*/*.[1-8] "$abs_top_builddir"/*/*.[1-8]; do
        case $page in */autom4te.cache/*) continue ;; esac
        is "groff reads ${page##*/}" "$(groff -man -Tutf8 -ww -z "$page" 2>&1)" ""
    done
else
    skip "groff reads the pages" "groff is not installed"
fi
done_testing
