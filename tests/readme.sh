#!/bin/sh
# shellcheck disable=SC2016
# The commands of the README and of the manual pages' examples, word for word, on the demo model.
. "${abs_top_srcdir:?}/tests/testlib.sh"
cd "$tmp" || exit 99
if [ "$SANITIZE" != no ]; then
    skip "the commands of the documents" "a sanitizer's library must come first in LD_PRELOAD"
    done_testing
fi
if "$engine" info "$data/tiny-qwen3-q8_0.gguf" | grep -q 'hooks.*not compiled in'; then
    skip "the commands of the documents" "the engine is built with --disable-hooks"
    done_testing
fi
# A clone that is built, with a shorter prompt, which is also what the manual pages name.
ln -s "$abs_top_builddir" build
mkdir -p tests/data
ln -s "$data/tiny-qwen3-q8_0.gguf" tests/data/
ln -s "$data/tiny-qwen3-q8_0.gguf" model.gguf
head -c 400 "$data/prompt.txt" >tests/data/prompt.txt
cp tests/data/prompt.txt prompt.txt

# Run each line; verdict, gate, compare and blame end with what they found.
run_lines() { # NAME FILE
    while read -r line; do
        sh -c "$line" >out 2>err </dev/null
        status=$?
        case "$status $line" in
        0\ * | [34]\ *neartie\ verdict* | [34]\ *neartie\ gate* | [34]\ *neartie\ compare*) found=yes ;;
        *) found="no: exit status $status: $(tail -1 err)" ;;
        esac
        is "$1: $line" "$found" yes
    done <"$2"
}
sed -n '/^## Record and read/,/^## Build/s/^    \([^ ].*\)/\1/p' "$abs_top_srcdir/README.md" |
    tee all.txt | grep -v '^export ' >readme.txt
grep '^export ' all.txt >exports.sh
. ./exports.sh
is "the README's commands are found" "$(test "$(wc -l <readme.txt)" -ge 12; echo $?) $(wc -l <exports.sh)" "0 2"
run_lines README readme.txt
is "the record that they leave has several runs" \
    "$(sqlite3 run.db 'SELECT count(*) > 1 FROM runs')" 1
is "PROBE_HELP lists the settings, as the README says" \
    "$(PROBE_HELP=1 LD_PRELOAD=libprobe.so /bin/true 2>&1 | grep -c PROBE_DB)" 1

# Commands in the text: those that are not run here are run by another test, where they stand as said.
tr '`' '\n' <"$abs_top_srcdir/README.md" | grep -E '^(\./bootstrap|\.ci/|make|neartie|PROBE_HELP)( |[^_]* )' |
    grep -v ' is ' | sort -u >inline.txt
cd "$abs_top_srcdir" || exit 99
while read -r line; do
    case $line in
    "neartie import "*) where="tests/cli_import*.sh" what=$(echo "$line" | grep -o 'import [a-z]*') ;;
    "neartie calibrate"*) where=tests/cli_verdict.sh what='"$neartie" calibrate' ;;
    "neartie verdict"*) where=tests/cli_verdict.sh what='"$neartie" verdict' ;;
    PROBE_HELP*) where=tests/readme.sh what=$line ;;
    "make install" | "make -C build install" | "./bootstrap build --prefix=DIR") where=tests/install.sh what="build install" ;;
    "neartie report") where=tests/cli_report.sh what='"$neartie" report' ;;
    "make -C build deb") where=tests/deb.sh what='make -C "$abs_top_builddir" deb' ;;
    "./bootstrap build OPTION...") where=.ci/deb what="./bootstrap build" ;;
    *) where=tests/readme.sh what="no test: $line" ;;
    esac
    # shellcheck disable=SC2086
    ok "README: $line: is run" grep -qF -e "$what" $where
done <"$tmp/inline.txt"
ok "there are such commands" test "$(wc -l <"$tmp/inline.txt")" -gt 7
cd "$tmp" || exit 99

rm -f ./*.db
for page in collector/neartie.1 engine/neartie-engine.1 shim/libprobe.7; do
    sed -n '/^\.SH EXAMPLES/,/^\.SH SEE/p' "$abs_top_srcdir/$page" |
        sed -n '/^\.nf/,/^\.fi/{s/^\.B //;/^\./d;p}' | sed "s/\\\\-/-/g; s/\\\\e/\\\\/g; s/\\\\(aq/'/g" >examples.txt
    ok "$page has examples" test -s examples.txt
    run_lines "$page" examples.txt
done
done_testing
