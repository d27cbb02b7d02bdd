#!/bin/sh
# Layout (clang-format 14), shell scripts (shellcheck), and the size of source files.
. "${abs_top_srcdir:?}/tests/testlib.sh"
cd "$abs_top_srcdir" || exit 99

sources=$(find err.h sql shim engine kernels collector tests -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' | sort)
format=$(command -v clang-format-14 || command -v clang-format)
case $("${format:-false}" --version 2>/dev/null) in
*"version 14"*)
    # shellcheck disable=SC2086
    ok "clang-format finds nothing to change" "$format" --dry-run -Werror $sources ;;
*) skip "clang-format finds nothing to change" "clang-format 14 is not installed" ;;
esac
if command -v shellcheck >/dev/null; then
    ok "shellcheck finds nothing in the shell scripts" \
        shellcheck -x -P SCRIPTDIR -e SC1091 bootstrap .ci/run .ci/deb tests/*.sh
else
    skip "shellcheck finds nothing in the shell scripts" "shellcheck is not installed"
fi
# shellcheck disable=SC2086
is "no format counts its arguments: a hardened C library aborts where one is left out" \
    "$(grep -nE '%[0-9]+\$[a-z]' $sources)" ""
# shellcheck disable=SC2086
is "no source file has more than 800 lines" \
    "$(wc -l $sources | awk '$2 != "total" && $1 > 800')" ""
done_testing
