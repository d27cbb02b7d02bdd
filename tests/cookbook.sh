#!/bin/sh
# Every query of the cookbook runs, and prints what the page says.
. "${abs_top_srcdir:?}/tests/testlib.sh"
page=$abs_top_srcdir/sql/cookbook.md
cat "$abs_top_srcdir/sql/schema.sql" "$abs_top_srcdir/sql/views.sql" "$data/golden.sql" |
    sqlite3 "$tmp/golden.db" || exit 99

# Split the page: N.name, N.sql and N.out of each question.
awk -v dir="$tmp" '
    /^## / { n++; sub(/^## /, ""); print > (dir "/" n ".name"); block = 0; next }
    /^```/ { inside = !inside; block += inside; next }
    inside { print > (dir "/" n (block == 1 ? ".sql" : ".out")) }' "$page"
n=1
while [ -f "$tmp/$n.name" ]; do
    is "$(cat "$tmp/$n.name")" \
        "$(sqlite3 -header -column "$tmp/golden.db" <"$tmp/$n.sql" | sed 's/ *$//')" \
        "$(cat "$tmp/$n.out")"
    run "$neartie" sql "$tmp/golden.db" "$(cat "$tmp/$n.sql")"
    is "the same through neartie sql" "$status $(wc -l <"$tmp/out")" \
        "0 $(($(wc -l <"$tmp/$n.out") - 1))"
    n=$((n + 1))
done
ok "there are 15 questions or more" test "$n" -gt 15
done_testing
