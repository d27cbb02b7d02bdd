#!/bin/sh
# neartie report in each of its forms: the figures, the queries it names, the page, hostile text,
# runs that died or hold nothing.
. "${abs_top_srcdir:?}/tests/testlib.sh"
cd "$tmp" || exit 99
cat "$abs_top_srcdir/sql/schema.sql" "$abs_top_srcdir/sql/views.sql" "$data/golden.sql" |
    sqlite3 golden.db || exit 99
failure() { run "$@"; echo "$status $(sed 's/.*: \(neartie: \)/\1/' "$tmp/err")"; }

# --- on a terminal ---
run "$neartie" report golden.db --a 1:prefill --b 1:decode
is "what was compared, first the verdict in words" "$status
$(sed '/^Agreement/,$d' out)" "0
NONFINITE: B: 1 rows, first at sequence 1 position 4, 1 NaN 0 +inf; beside it SYSTEMATIC(scale)
Logits hold NaN or +inf: a defect, whatever token came out.
scale     typical rows differ more than those of a sound pair: scale 0.7413 over 5 rows, prior 0.03

What was compared
run       1, 2001-09-09 01:46:40 UTC, 2.5 s
engine    engine 1
model     golden.gguf
arms      prefill (A) against decode (B)
settings  all 2 are equal
kernels   2 of 2 differ
kind     name                                                                             a  b
kernels  _Z4gemmPf grid 8x1x1 block 256x1x1 smem 1024+2048 regs 128 code c1 constants d1  2  
kernels  _Z4gemvPf grid 64x2x1 block 128x1x1 smem 0+0 regs 40 code c2 constants d1        1  2"
is "the sections" "$(grep -E '^[A-Z][a-z][a-z ,'\'']*$' out)" "What was compared
Agreement and noise
Margins
Flips
Contrasts by position
Tests
What goes with the differences
The last positions, by the seed's rule
What is missing
Look further"
is "the last positions" "$(sed -n '/^The last/,/^What is missing/p' out)" \
    "The last positions, by the seed's rule
Kept as a yardstick: the verdict that counts is the one above.
rows      seq_id 1, the last 6 of 6 comparable positions

pos      prefill_top1  prefill_top2  margin_p   decode_top1   decode_top2   margin_d   delta@ids  agree
0        1             2             1.0000     1             2             1.2500     0.2500     yes
1        4             5             0.2500     5             4             0.2500     0.5000     NO <-- FLIP
2        1             2             0.0000     1             2             0.5000     0.5000     yes
3        6             7             0.5000     2             6             0.2500     >=1.5000   NO <-- FLIP
4        1             2             0.5000     1             2             0.5000     0.0000     yes
5        3             4             0.5000     3             4             0.6250     0.1250     yes

gate: prefill argmax 3, decode argmax 3, largest |difference| 0.1250 over 3 ids: MATCH
margins of decode (6 positions): min 0.2500  p10 0.2500  p50 0.5000  p90 1.2500  max 1.2500
margins of prefill: min 0.0000  p50 0.5000  max 1.0000
decision position 5: prefill_top1=3 decode_top1=3 margin_p=0.5000 margin_d=0.6250 delta@ids=0.1250
  its margin is above 4/6 of decode's margins (rank 5 of 6)
  a flip is possible if delta > smaller margin: 0.1250 > 0.5000 = false
agreement: 4/6 (2 flips)
note: NaN or +inf at 1 of 6 positions, which this rule does not look at
note: delta is a lower bound at 1 of 6 positions
verdict (rule seed): SYSTEMATIC - two flips or more

What is missing"
is "what is missing" "$(grep '^not recorded' out)" "not recorded in run 1: rows_dropped, 3"
is "what stands before a flip" "$(grep "' cat'" out | sed 's/.* \\/\\/')" '\xff the'
is "no colour where there is no terminal" "$(grep -c "$(printf '\033')" out)" 0
if python3 -c 'import pty; pty.openpty()' 2>pty.txt; then
    # shellcheck disable=SC2016
    is "colour on a terminal, and none with NO_COLOR" "$(
    for no in '' 1; do
        NO_COLOR=$no python3 -c '
import os, pty, sys
out = b""
def read(fd):
    global out
    data = os.read(fd, 65536)
    out += data
    return b""
pty.spawn(sys.argv[1:], read)
print(out.count(b"\033[1;31mNONFINITE"), end=" ")' "$neartie" report golden.db --a 1 --b 2
    done)" "1 0 "
else
    skip "colour on a terminal, and none with NO_COLOR" "no pseudo-terminal: $(tail -1 pty.txt)"
fi
is "bars in the terminal's own characters" "$(
    LC_ALL=C.UTF-8 "$neartie" report golden.db --a 1 --b 2 | grep -c '^margins .*█') $(
    LC_ALL=C "$neartie" report golden.db --a 1 --b 2 | grep -c '^margins .*#')" "1 1"

# --- which arms ---
run "$neartie" report golden.db
is "the latest run comes first" "$(grep ^arms out)" "arms      decode (A) against verify (B)"
run "$neartie" report golden.db --a 3 --b 1
is "arms in either order" "$(sed -n 's/^decision[^:]*: //p' out)" \
    "2:decode_top1=1 1:prefill_top1=1 margin_2=1.2500 margin_1=1.0000 delta@ids=0.2500"
run "$neartie" report golden.db --a 3 --b 1 --seq 2
is "a sequence can be chosen" "$(sed -n 's/^agreement: //p' out)" "1/2 (1 flip)"

cp golden.db shared.db
sqlite3 shared.db "DELETE FROM logits WHERE arm_id NOT IN (1, 2, 3);
    UPDATE logits SET context_hash = 'x' || row_id WHERE arm_id = 1 AND pos > 0"
run "$neartie" report shared.db
is "of the pairs of two runs, the one that shares most" "$(grep ^arms out)" \
    "arms      1:decode (A) against 2:decode (B)"
cp golden.db knobs.db
sqlite3 knobs.db "UPDATE arms SET label = 'decode:FA_SPLIT=16:KV=f32' WHERE arm_id = 2"
run "$neartie" report knobs.db --a 1 --b 2
is "the knobs of an arm's label are settings" \
    "$(sed -n '/^settings  [0-9]/,/^kernels/p' out | grep NEARTIE)" \
    "settings  NEARTIE_FA_SPLIT  8  16
settings  NEARTIE_KV           f32"

# --- for programs ---
run "$neartie" report golden.db --a 1:prefill --b 1:decode --window 1 --format csv
is "csv has the positions" "$(cat out)" "pos,top1_a,top2_a,margin_a,top1_b,top2_b,margin_b,delta,bounded,bad,agree
5,3,4,0.5,3,4,0.625,0.125,0,0,1"
run "$neartie" report golden.db --json
ok "json is valid" python3 -m json.tool out
is "--json and --md: one of them" "$(failure "$neartie" report golden.db --json --md | head -1)" \
    "2 neartie report: --md and another format: choose one"

# --- every query that a report names, in the stock shell ---
run "$neartie" report golden.db --md --a 1 --b 2
sed -n 's/^    \(SELECT .*\)/\1/p' out >queries.sql
is "the queries that a report names run in the stock shell" \
    "$(wc -l <queries.sql) $(sqlite3 -bail golden.db <queries.sql >rows.txt; echo $?) $(test -s rows.txt; echo $?)" \
    "7 0 0"
sed -n 's/^    neartie \(.* FILE .*\)/\1/p' out | sed 's/FILE/golden.db/' >commands.txt
is "and its commands" "$(while read -r line; do
    # shellcheck disable=SC2086
    "$neartie" $line >out 2>err </dev/null
    echo $?
done <commands.txt | xargs)" "3 0"

# --- the page ---
check_page() { # NAME FILE PLOTS
    ok "$1: balanced tags, $3 plots with data, nothing to load" python3 - "$2" "$3" <<'PYTHON'
import html.parser, re, sys
VOID = {"meta", "link", "br", "hr", "img"}
class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.ids, self.plots = [], [], 0
    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        assert tag not in ("script", "iframe", "object", "embed", "form"), tag
        for name, value in attributes.items():
            assert not name.startswith("on"), name
            if name in ("src", "href", "xlink:href"):
                assert value.startswith(("#", "data:")), value
        if "id" in attributes:
            self.ids.append(attributes["id"])
        self.plots += tag == "svg"
        if tag not in VOID:
            self.open.append(tag)
    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()
    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, (self.open[-3:], tag)
        self.open.pop()
page = Page()
text = open(sys.argv[1], encoding="utf-8").read()
page.feed(text)
page.close()
assert not page.open, page.open
assert "\x1b" not in text and "url(http" not in text
assert page.plots == int(sys.argv[2]), page.plots
twice = {i for i in page.ids if page.ids.count(i) > 1}
assert not twice, twice
series = re.split(r'id="[a-z]+-gnuplot_plot_\d+"', text)[1:]
assert all(re.search("<(path|use|polygon)", one) for one in series), "a plot without data"
assert len(series) >= page.plots
PYTHON
}
plots=5
command -v gnuplot >gnuplot.txt || plots=0
run "$neartie" report golden.db --a 1 --b 2 --html page.html
is "the page is written, and nothing else" "$status $(cat out err) $(echo page*)" "0  page.html"
if [ $plots = 5 ]; then
    check_page "the page" page.html 5
else
    skip "the page: balanced tags, 5 plots with data, nothing to load" "gnuplot is not installed"
fi
mkdir bin
for tool in sh cat; do ln -s "$(command -v $tool)" bin/; done
PATH=$tmp/bin "$neartie" report golden.db --a 1 --b 2 --html plain.html
check_page "without gnuplot" plain.html 0
is "without gnuplot: tables, and a word on it" \
    "$(grep -c 'gnuplot is not installed' plain.html) $(grep -c '>margin_from<' plain.html)" "1 1"
is "without a converter: no pdf" "$(
    failure env PATH="$tmp/bin" "$neartie" report golden.db --pdf page.pdf; find . -name "page.pdf*" | wc -l)" \
    "1 neartie: page.pdf: no converter: install chromium, weasyprint or wkhtmltopdf
0"
is "a page where none can be written" "$(failure "$neartie" report golden.db --html none/page.html)" \
    "1 neartie: none/page.html: No such file or directory"
if command -v chromium >chromium.txt; then
    browser() { # OPTION...
        chromium --headless --no-sandbox --disable-gpu --disable-quic --no-first-run \
            --disable-background-networking --disable-component-update --disable-sync \
            --user-data-dir="$tmp/profile" --enable-logging=stderr --log-level=0 "$@" 2>browser.txt
    }
    browser --dump-dom "file://$tmp/page.html" >dom.txt
    is "a browser has nothing to say against the page, and asks for nothing else" \
        "$(grep -cE 'CONSOLE|net_error|ERR_' browser.txt) $(grep -c '<h2>Look further' dom.txt)" "0 1"
    cat >narrow.html <<'END'
<!doctype html><title>?</title><iframe id="page" src="page.html" width="400" height="900" onload="
const page = document.getElementById('page').contentDocument, plots = [...page.querySelectorAll('figure svg')];
document.title = plots.length + ' plots, ' + plots.filter(p => p.getBoundingClientRect().right > 400).length
    + ' cut, ' + (page.documentElement.scrollWidth - page.documentElement.clientWidth) + ' beyond'"></iframe>
END
    browser --allow-file-access-from-files --dump-dom "file://$tmp/narrow.html" >dom.txt
    is "on a narrow screen no plot is cut, and the page does not scroll sideways" \
        "$(sed -n 's|.*<title>\(.*\)</title>.*|\1|p' dom.txt | sed 's/^[1-9][0-9]* plots/plots/')" \
        "$([ "$plots" = 0 ] || echo "plots, 0 cut, 0 beyond")"
    run "$neartie" report golden.db --pdf page.pdf
    is "the pdf" "$status $(head -c 5 page.pdf)" "0 %PDF-"
else
    skip "a browser has nothing to say against the page, and asks for nothing else" \
        "chromium is not installed"
    skip "on a narrow screen no plot is cut, and the page does not scroll sideways" "chromium is not installed"
    skip "the pdf" "chromium is not installed"
fi

# --- hostile text in every column of text, but for those whose values the schema lists ---
cp golden.db hostile.db
hostile="char(27) || ']0;title' || char(7) || char(10) || '\"></td><script>alert(1)</script>|\`<b>&' || x'ff'"
sqlite3 hostile.db "SELECT m.name, c.name FROM sqlite_schema AS m, pragma_table_info(m.name) AS c WHERE m.type = 'table'
    AND c.type IN ('TEXT', 'BLOB') AND m.name <> 'meta' AND c.name NOT IN ('topk', 'list', 'quantiles', 'state',
    'source', 'phase', 'dtype')" -separator ' ' >columns.txt
while read -r table column; do
    echo "UPDATE $table SET $column = $hostile || coalesce($column, '');"
done <columns.txt | sqlite3 hostile.db
is "hostile text is in every column" "$(($(wc -l <columns.txt) > 30)) $(while read -r table column; do
    sqlite3 hostile.db "SELECT '$table.$column' FROM $table WHERE instr($column, '<script>') = 0 LIMIT 1"
done <columns.txt)" "1 "
run "$neartie" report hostile.db --a 1 --b 2 --html hostile.html
is "hostile text: the page is written" "$status" 0
check_page "hostile text" hostile.html $plots
for command in report verdict flips kernels runs percentiles blame "queries FILE arms"; do
    # shellcheck disable=SC2046
    "$neartie" $(case $command in *FILE*) echo "$command" | sed s/FILE/hostile.db/ ;; *) echo "$command hostile.db" ;; esac)
done >out 2>&1
is "hostile text: nothing that a terminal acts on" "$(LC_ALL=C grep -c "[$(printf '\001-\011\013-\037\177')]" out)" 0
run "$neartie" report hostile.db --a 1 --b 2 --md
is "hostile text: no tag of its own in Markdown" "$(grep -v '^    ' out | grep -c '[^\\]<script') $(grep -c "$(printf '\033')" out)" "0 0"

# --- records that say little ---
cp golden.db alone.db
sqlite3 alone.db "UPDATE logits SET context_hash = NULL"
run "$neartie" report alone.db
is "nothing to compare, so what there is" "$status $(grep -cE '^(runs|arms|gaps)$' out) $(head -1 out)" \
    "4 3 NOT-COMPARABLE"
run "$neartie" report alone.db --html alone.html
is "the page says so too" "$status $(grep -c NOT-COMPARABLE alone.html)" "4 1"
check_page "nothing to compare" alone.html 0
cp golden.db empty.db
sqlite3 -bail empty.db "DELETE FROM delta_lists; DELETE FROM logits; DELETE FROM forwards;" || exit 99
run "$neartie" report empty.db
is "an empty run" "$status $(head -2 out | tail -1)" "4 empty.db: no two arms have a position of the same context: record the same tokens in two settings"
run "$neartie" report golden.db --a 3 --b 4
is "a run that died" "$status $(grep -c '^run .*died, and was recovered' out)" "0 1"
done_testing
