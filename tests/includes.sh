#!/bin/sh
# Who may include whom: kernels -> nothing; engine -> kernels, shim/probe.h, collector/seed.h;
# shim -> sql; collector -> sql; tests -> all; all -> err.h.
. "${abs_top_srcdir:?}/tests/testlib.sh"

# Print the includes of another folder that the pattern does not allow.
foreign() { # FOLDER ALLOWED-ERE
    grep -nE '^[[:space:]]*#[[:space:]]*include[[:space:]]+"' \
        "$abs_top_srcdir/$1"/*.[ch] "$abs_top_srcdir/$1"/*.cu "$abs_top_srcdir/$1"/*.cuh 2>/dev/null |
        grep -vE "\"(err\\.h|config\\.h|$1/[a-z0-9_]+\\.(h|cuh|def|inc)|[a-z0-9_]+\\.(h|cuh|def|inc)${2:+|$2})\""
}
is "kernels include nothing of the other parts" "$(foreign kernels '')" ""
is "engine includes kernels, shim/probe.h and collector/seed.h" \
    "$(foreign engine 'kernels/[a-z0-9_]+\.(h|def)|shim/probe\.h|collector/seed\.h')" ""
is "sql includes nothing of the other parts" "$(foreign sql '')" ""
is "shim includes sql" "$(foreign shim 'sql/[a-z0-9_]+\.h')" ""
is "collector includes sql" "$(foreign collector 'sql/[a-z0-9_]+\.h')" ""
is "the shim reaches SQLite through sql/ alone" \
    "$(grep -lE 'include <sqlite3\.h>' "$abs_top_srcdir"/shim/*.[ch])" ""
done_testing
