#!/bin/sh
# The Debian package: what make deb builds has no fault that lintian knows, holds every part, and runs
# from wherever it is unpacked. Not part of make check, since it compiles everything: make check-deb.
. "${abs_top_srcdir:?}/tests/testlib.sh"
cd "$tmp" || exit 99
for tool in dpkg-buildpackage dh; do
    if ! command -v $tool >/dev/null; then
        skip "the Debian package" "$tool is not installed (packages dpkg-dev and debhelper)"
        done_testing
    fi
done
ok "make deb" env -u MAKEFLAGS -u MAKELEVEL DEB_BUILD_OPTIONS="nocheck parallel=$(nproc)" \
    make -C "$abs_top_builddir" deb
find "$abs_top_builddir/deb" -maxdepth 1 -type f -exec cp {} . ';'
if command -v lintian >/dev/null; then
    ok "lintian has no error and no warning" lintian --allow-root --fail-on error,warning ./*.changes
else
    skip "lintian has no error and no warning" "lintian is not installed"
fi
contents() { dpkg-deb -c "$1"_[0-9]*.deb | sed -n 's| -> .*||; s|.* \./\(.*[^/]\)$|\1|p' | LC_ALL=C sort; }
contents neartie >neartie.txt
contents neartie-dev >dev.txt
triplet=$(dpkg-architecture -qDEB_HOST_MULTIARCH)
is "programs, probe, completions and manual pages are in the package" \
    "$(grep -vE '^usr/share/(neartie|doc|lintian)/' neartie.txt)" "usr/bin/neartie
usr/bin/neartie-engine
usr/lib/$triplet/libprobe.so
usr/share/bash-completion/completions/neartie-engine.bash
usr/share/bash-completion/completions/neartie.bash
$(for page in "$abs_top_builddir"/collector/*.1 "$abs_top_srcdir"/collector/*.1 "$abs_top_srcdir"/engine/*.1 \
    "$abs_top_srcdir"/shim/*.7 "$abs_top_builddir"/sql/*.5; do
    echo "usr/share/man/man${page##*.}/${page##*/}.gz"
done | LC_ALL=C sort)
usr/share/zsh/vendor-completions/_neartie"
is "every SQL file is" "$(sed -n 's|usr/share/neartie/sql/\(.*\.sql\)|\1|p' neartie.txt)" \
    "$(find "$abs_top_srcdir/sql" -name '*.sql' -printf '%f\n' | LC_ALL=C sort)"
is "the header and neartie.pc are in the other" "$(grep -v /doc/ dev.txt)" "usr/include/probe.h
usr/lib/$triplet/pkgconfig/neartie.pc
usr/share/man/man3/probe.h.3.gz"
for deb in neartie_*.deb neartie-dev_*.deb; do dpkg-deb -x "$deb" root; done
is "nothing is left of the build's folder" "$(grep -rl "$abs_top_builddir" root)" ""
run root/usr/bin/neartie gate -o run.db "$data/tiny-qwen35-q8_0.gguf" "$data/prompt.txt" --window 4
is "neartie runs its engine and its probe from where it was unpacked" \
    "$(root/usr/bin/neartie sql run.db 'SELECT count(*) FROM arms' --format csv | tail -1) $(tail -1 err)" "2 "
run root/usr/bin/neartie report run.db
ok "and reports" grep -q '^What was compared' out
cat >hook.c <<'END'
#include <probe.h>
int main(void) { return probe_attach() == NULL; }
END
if command -v pkg-config >/dev/null; then
    # shellcheck disable=SC2046
    ok "a program builds with the header that pkg-config names" "${CC:-gcc}" -o hook hook.c \
        $(PKG_CONFIG_LIBDIR=root/usr/lib/$triplet/pkgconfig PKG_CONFIG_SYSROOT_DIR=$PWD/root \
            PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1 pkg-config --cflags neartie)
    is "and finds the probe" "$(LD_LIBRARY_PATH=root/usr/lib/$triplet LD_PRELOAD=libprobe.so ./hook; echo $?) $(
        ./hook; echo $?)" "0 1"
else
    skip "a program builds with the header that pkg-config names" "pkg-config is not installed"
fi
done_testing
