#!/bin/sh
# neartie compare over the kernels of two arms, in one file and in two: whatever differs is named, and
# a knob that changed nothing is NOT-ENGAGED.
. "${abs_top_srcdir:?}/tests/testlib.sh"
cd "$tmp" || exit 99
schema() { cat "$abs_top_srcdir/sql/schema.sql" "$abs_top_srcdir/sql/views.sql"; }
{ schema; cat "$data/golden.sql"; } | sqlite3 a.db

# Arm 2 of the golden record against itself in another file, in which something is different.
gemv='_Z4gemvPf grid 64x2x1 block 128x1x1 smem 0+0 regs 40 code c2 constants d1'
compare() { # SQL...
    cp a.db b.db
    for change; do sqlite3 b.db "$change" || exit 99; done
    run "$neartie" compare a.db b.db --a 2 --b 2
}
differ() { # NAME SQL WANTED: kernel lines, | between them
    compare "$2" "UPDATE kernel_lists SET hash = 'e9' WHERE kernel_list_id = 2"
    is "$1: it is named" "$(grep ^kernel "$tmp/out" | tr -s ' ' | sed 's/ $//' | paste -s -d '|')" "$3"
    ok "$1: it has acted" sh -c "! grep -q NOT-ENGAGED '$tmp/out'"
}
changed() { # NAME SQL FACT-OF-B
    differ "$1" "$2" "$(printf 'kernel %s 2\nkernel %s 2' "$gemv" "$3" | sort | paste -s -d '|')"
}
sqlite3 a.db "UPDATE logits SET n_nan = 0, first_bad = NULL;
    UPDATE forwards SET kernel_list_id = 2 WHERE arm_id = 2"
compare ""
is "equal lists and bit-equal rows" "$status $(tail -1 "$tmp/out")" \
    "4 NOT-ENGAGED: 6 rows bit-equal, kernel lists equal"
is "equal lists: it says so" "$(grep '^kernels' "$tmp/out")" "kernels: all 1 are equal"
changed "another kernel" "UPDATE kernels SET name = '_Z5gemv2Pf' WHERE kernel_id = 2" \
    "_Z5gemv2Pf${gemv#_Z4gemvPf}"
changed "another grid" "UPDATE launch_configs SET grid_y = 4 WHERE config_id = 2" \
    "$(echo "$gemv" | sed s/64x2x1/64x4x1/)"
changed "another block" "UPDATE launch_configs SET block_x = 256 WHERE config_id = 2" \
    "$(echo "$gemv" | sed s/128x1x1/256x1x1/)"
changed "more registers" "UPDATE kernels SET registers = 48 WHERE kernel_id = 2" \
    "$(echo "$gemv" | sed 's/regs 40/regs 48/')"
changed "other code" "UPDATE kernels SET code_hash = 'c3' WHERE kernel_id = 2" \
    "$(echo "$gemv" | sed 's/code c2/code c3/')"
changed "other constants" "UPDATE kernels SET const_hash = 'd2' WHERE kernel_id = 2" \
    "$(echo "$gemv" | sed 's/constants d1/constants d2/')"
changed "more shared memory" "UPDATE launch_configs SET dynamic_smem_bytes = 64 WHERE config_id = 2" \
    "$(echo "$gemv" | sed 's/smem 0+0/smem 0+64/')"
changed "a cluster" "UPDATE launch_configs SET cluster_x = 2, cluster_y = 1, cluster_z = 1
    WHERE config_id = 2" "$gemv cluster 2x1x1"
changed "an attribute" "UPDATE launch_configs SET attributes = 'programmatic_serialization=1'
    WHERE config_id = 2" "$gemv with programmatic_serialization=1"
differ "one launch more" "INSERT INTO kernel_list_items VALUES (2, 2, 2, NULL)" "kernel $gemv 2 3"
differ "one launch more of many" "WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n
    WHERE i < 20000) INSERT INTO kernel_list_items SELECT 2, i, 2, NULL FROM n" "kernel $gemv 2 20001"
cp b.db a2.db
compare "DELETE FROM kernel_list_items WHERE kernel_list_id = 2"
is "no kernel of B" "$(grep ^kernel "$tmp/out" | tr -s ' ')" "kernel $gemv 2 "

# A list's number is its file's own.
renumber() { # FROM TO
    echo "INSERT INTO kernel_lists SELECT $2, 'new', n FROM kernel_lists WHERE kernel_list_id = $1;
        UPDATE kernel_list_items SET kernel_list_id = $2 WHERE kernel_list_id = $1;
        UPDATE forwards SET kernel_list_id = $2 WHERE kernel_list_id = $1;
        UPDATE kernel_lists SET hash = 'moved' WHERE kernel_list_id = $1;
        UPDATE kernel_lists SET hash = (SELECT 'e' || $1) WHERE kernel_list_id = $2;
        DELETE FROM kernel_lists WHERE kernel_list_id = $1;"
}
compare "$(renumber 2 7)"
is "the same list under another number is the same" "$status $(tail -1 "$tmp/out")" \
    "4 NOT-ENGAGED: 6 rows bit-equal, kernel lists equal"
compare "UPDATE kernel_lists SET hash = 'e9' WHERE kernel_list_id = 2" \
    "UPDATE kernels SET code_hash = 'c9' WHERE kernel_id = 2"
ok "another list under the same number is another" sh -c "! grep -q NOT-ENGAGED '$tmp/out'"
compare "UPDATE forwards SET kernel_list_id = NULL"
is "where one side has no lists, nothing is said of them" "$(tail -1 "$tmp/out")" \
    "NOT-ENGAGED: 6 rows bit-equal, kernel lists not recorded"

# Kernels are tags of what differs, also where the arms stand in two files.
{ schema; cat "$data/golden.sql"; } | sqlite3 one.db
"$neartie" blame one.db --a 1 --b 2 --format csv >one.out
cp one.db two.db
sqlite3 two.db "$(renumber 1 8)"
"$neartie" blame two.db one.db --a 1 --b 2 --format csv >two.out
"$neartie" blame two.db one.db --a 1 --b 2 >all.out
is "blame of two files names the kernels" "$(sed -n '/_Z4gem/s/ code.*d1//p' all.out | tr -s ' ')" \
    " _Z4gemmPf grid 8x1x1 block 256x1x1 smem 1024+2048 regs 128 2 
 _Z4gemvPf grid 64x2x1 block 128x1x1 smem 0+0 regs 40 1 2"
is "blame says the same of one file and of two" "$(cat two.out)" "$(cat one.out)"
done_testing
