# TAP for the shell tests, sourced by each: a folder of its own in $tmp, removed unless a case
# failed; `ok NAME COMMAND...`, `is NAME GOT WANT`, `skip NAME REASON`, and `done_testing` last.
# shellcheck shell=sh
: "${abs_top_builddir:?run by make check}" "${abs_top_srcdir:?run by make check}"
tap_n=0 tap_failed=0
tmp=$(mktemp -d "${TMPDIR:-/tmp}/neartie-test.XXXXXX") || exit 99
trap 'if [ "$tap_failed" = 0 ]; then rm -rf "$tmp"; else echo "# kept: $tmp"; fi' EXIT

tap_result() { # PASS(0|other) NAME
    tap_n=$((tap_n + 1))
    if [ "$1" = 0 ]; then echo "ok $tap_n - $2"; return 0; fi
    tap_failed=$((tap_failed + 1))
    echo "not ok $tap_n - $2"
    return 1
}
ok() { # NAME COMMAND...
    tap_name=$1; shift
    if "$@" >"$tmp/.out" 2>"$tmp/.err"; then tap_result 0 "$tap_name"; else
        tap_result 1 "$tap_name"; sed 's/^/# /' "$tmp/.out" "$tmp/.err" | head -40
    fi
}
is() { # NAME GOT WANT
    if [ "$2" = "$3" ]; then tap_result 0 "$1"; else
        tap_result 1 "$1"
        { echo "got:"; echo "$2"; echo "want:"; echo "$3"; } | sed 's/^/# /' | head -60
    fi
}
skip() { # NAME REASON
    tap_n=$((tap_n + 1)); echo "ok $tap_n - $1 # SKIP $2"
}
# Run a command; its exit status goes to $status, its outputs to $tmp/out and $tmp/err.
# shellcheck disable=SC2034
run() {
    if "$@" >"$tmp/out" 2>"$tmp/err" </dev/null; then status=0; else status=$?; fi
}
done_testing() { echo "1..$tap_n"; [ "$tap_failed" = 0 ]; exit; }

# Named by the tests that source this file.
# shellcheck disable=SC2034
neartie=$abs_top_builddir/collector/neartie engine=$abs_top_builddir/engine/neartie-engine \
    probe=$abs_top_builddir/shim/libprobe.so data=$abs_top_srcdir/tests/data
