#!/bin/sh
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
mkdir bin
ln -s "$neartie" "$engine" bin/
ln -s "$data/tiny-qwen3-q8_0.gguf" MODEL.gguf
ln -s "$data/tiny-qwen3-q8_0.gguf" model.gguf
head -c 400 "$data/prompt.txt" >PROMPT.txt
cp PROMPT.txt prompt.txt
PATH=$tmp/bin:$PATH LD_LIBRARY_PATH=$abs_top_builddir/shim
export PATH LD_LIBRARY_PATH

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
    grep -v '^make' >readme.txt
is "the README's commands are found" "$(test "$(wc -l <readme.txt)" -ge 8; echo $?)" 0
run_lines README readme.txt
is "the record that they leave has several runs" \
    "$(sqlite3 run.db 'SELECT count(*) > 1 FROM runs')" 1
is "PROBE_HELP lists the settings, as the README says" \
    "$(PROBE_HELP=1 LD_PRELOAD=libprobe.so /bin/true 2>&1 | grep -c PROBE_DB)" 1

rm -f ./*.db
for page in collector/neartie.1 engine/neartie-engine.1; do
    sed -n '/^\.SH EXAMPLES/,/^\.SH SEE/s/^\([a-zA-Z].*\)/\1/p' "$abs_top_srcdir/$page" |
        sed 's/\\-/-/g; s/\\e/\\/g' >examples.txt
    run_lines "$page" examples.txt
done
done_testing
