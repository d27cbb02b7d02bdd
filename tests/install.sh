#!/bin/sh
# make install into an empty prefix: the loader's cache is renewed after the probe lies there, the
# bare name LD_PRELOAD=libprobe.so works, the manual pages are found; make uninstall leaves no file.
. "${abs_top_srcdir:?}/tests/testlib.sh"
cd "$tmp" || exit 99
mkdir bin prefix
cat >bin/ldconfig <<EOT
#!/bin/sh
find '$tmp/prefix' -name libprobe.so >'$tmp/seen'
EOT
chmod +x bin/ldconfig
# shellcheck disable=SC2317
build() {
    env -u MAKEFLAGS -u MAKELEVEL -u DESTDIR PATH="$tmp/bin:$PATH" \
        make -C "$abs_top_builddir" "$1" prefix="$tmp/prefix"
}

ok "make install" build install
lib=$(find prefix -name libprobe.so)
if [ "$(id -u)" = 0 ]; then
    is "the loader's cache is renewed when the probe is in place" "$(cat seen)" "$tmp/$lib"
else
    skip "the loader's cache is renewed when the probe is in place" "only root can renew it"
fi
if [ "$SANITIZE" = no ]; then
    LD_LIBRARY_PATH=$tmp/${lib%/*} LD_PRELOAD=libprobe.so PROBE_DB=run.db \
        prefix/bin/neartie-engine gate "$data/tiny-qwen35-q8_0.gguf" "$data/prompt.txt" \
        --window 4 >gate.out 2>gate.err
    is "the probe records by its bare name" "$(cat gate.err)$(
        prefix/bin/neartie sql run.db 'select count(*) from arms' --format csv | tail -1)" 2
else
    skip "the probe records by its bare name" "a sanitizer's library must come first"
fi
# tests/man.sh knows which there are.
is "every manual page is installed" "$(find prefix -path '*/man/*' -type f | sed 's|.*/||' | LC_ALL=C sort)" \
    "$(find "$abs_top_srcdir/collector" "$abs_top_srcdir/engine" "$abs_top_srcdir/shim" "$abs_top_builddir/collector" \
        "$abs_top_builddir/sql" -name '*.[1-8]' | sed 's|.*/||' | LC_ALL=C sort -u)"
pc=$(find prefix -name neartie.pc)
if command -v pkg-config >/dev/null; then
    is "pkg-config names the hook header's folder and the probe" \
        "$(PKG_CONFIG_PATH=${pc%/*} pkg-config --define-variable=prefix="$tmp/prefix" \
            --cflags neartie | xargs)" "-I$tmp/prefix/include"
    is "and its version" "$(PKG_CONFIG_PATH=${pc%/*} pkg-config --modversion neartie)" \
        "$("$neartie" --version | cut -d' ' -f2)"
    is "and the folder of the Python module" \
        "$(ls "$(PKG_CONFIG_PATH=${pc%/*} pkg-config --define-variable=prefix="$tmp/prefix" \
            --variable=pythondir neartie)")" neartie_probe.py
    printf '#include <probe.h>\nint main(void) { return probe_attach() == NULL; }\n' >hook.c
    # shellcheck disable=SC2046
    ok "a program builds by it" "${CC:-gcc}" -o hook hook.c \
        $(PKG_CONFIG_PATH=${pc%/*} pkg-config --define-variable=prefix="$tmp/prefix" --cflags neartie)
    is "and it names the probe that was installed" "$(PKG_CONFIG_PATH=${pc%/*} pkg-config \
        --define-variable=prefix="$tmp/prefix" --variable=probe neartie)" "$tmp/$lib"
else
    skip "pkg-config names the hook header's folder and the probe" "pkg-config is not installed"
    skip "and the folder of the Python module" "pkg-config is not installed"
fi
# shellcheck disable=SC2016
complete='source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _neartie "$1"; echo "${COMPREPLY[@]}"'
completion=$(find prefix -name neartie.bash)
PATH=$tmp/prefix/bin:$PATH
if command -v bash >/dev/null; then
    is "bash completes commands, and options of a command" \
        "$(bash -c "$complete" "$completion" neartie per) $(
            bash -c "$complete" "$completion" neartie verdict --rul)" "percentiles --rule="
    is "and what import reads" \
        "$(bash -c "$complete" "$completion" neartie import '') $(
            bash -c "$complete" "$completion" neartie import logprobs --join to)" \
        "npy logprobs kld seed-log tokens"
else
    skip "bash completes commands, and options of a command" "bash is not installed"
    skip "and what import reads" "bash is not installed"
fi
if command -v zsh >/dev/null; then
    ok "zsh can read its completion" zsh -n "$(find prefix -name _neartie)"
else
    skip "zsh can read its completion" "zsh is not installed"
fi
ok "make uninstall" build uninstall
is "nothing stays behind" "$(find prefix -type f -o -type l)" ""
done_testing
