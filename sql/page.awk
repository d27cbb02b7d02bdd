# Turn schema.sql and views.sql into the manual page neartie-sql(5): the comment over a table or view,
# and its columns with theirs.
function roff(s) {
    gsub(/\\/, "\\e", s)
    gsub(/-/, "\\-", s)
    sub(/^[.']/, "\\\\\\&&", s)
    return s
}
function flush_column() {
    if (column != "") print ".TP\n.BR " column (kind != "" ? " \" " roff(kind) "\"" : "")
    if (column != "" && note != "") print roff(note)
    column = kind = note = ""
}
# The items of a list that stand between commas outside of brackets.
function split_items(s, out,    i, c, depth, n) {
    n = 1
    out[1] = ""
    for (i = 1; i <= length(s); i++) {
        c = substr(s, i, 1)
        depth += (c == "(") - (c == ")")
        if (c == "," && depth == 0) out[++n] = ""
        else out[n] = out[n] c
    }
    return n
}
function table_line(line,    code, comment, at, items, n, i, word, rest) {
    at = index(line, "--")
    code = at ? substr(line, 1, at - 1) : line
    comment = at ? substr(line, at + 2) : ""
    sub(/^ +/, "", comment)
    if (at && code ~ /^ *$/) { # a line of comment: of the next column, or more of the last one's
        if (at <= 5) before = before (before == "" ? "" : " ") comment
        else note = note (note == "" ? "" : " ") comment
        return
    }
    if (in_key && code ~ /\)/) { in_key = 0; return }
    if (code ~ /^ *(PRIMARY KEY|UNIQUE) *\(/) { in_key = code !~ /\)/; return }
    if (in_key) return
    n = split_items(code, items)
    for (i = 1; i <= n; i++) {
        rest = items[i]
        gsub(/^ +| +$/, "", rest)
        if (rest == "") continue
        flush_column()
        word = rest
        sub(/ .*/, "", word)
        sub(/^[^ ]+ +/, "", rest)
        column = word
        kind = rest
        note = before
        before = ""
    }
    note = note (note != "" && comment != "" ? " " : "") comment
}
function end_view(    s, i, c, depth, from, items, n, name, list) {
    s = view
    gsub(/\n/, " ", s)
    for (i = 1; i <= length(s); i++) {
        c = substr(s, i, 1)
        depth += (c == "(") - (c == ")")
        if (!depth && !from && substr(s, i, 7) == "SELECT ") from = i + 7
        if (!depth && from && substr(s, i, 6) == " FROM ") break
    }
    n = split_items(substr(s, from, i - from), items)
    for (i = 1; i <= n; i++) {
        name = items[i]
        sub(/ +$/, "", name)
        sub(/.*[ .]/, "", name)
        gsub(/"/, "", name)
        list = list (i > 1 ? ",\n" : "") ".B " name
    }
    gsub(/,\n\.B /, " ,\n.BR ", list)
    sub(/^\.B /, ".BR ", list)
    print ".PP\nColumns:\n" list
    view = ""
}
function heading(name) {
    print ".SS " name
    print roff(comment_block)
    comment_block = ""
}
FNR == 1 {
    files++
    if (files == 1) {
        print ".\\\" Made by page.awk of schema.sql and views.sql.\n.TH NEARTIE\\-SQL 5 \"\" neartie \"File Formats\"\n.nh"
        print ".SH NAME\nneartie\\-sql \\- the database that libprobe.so writes and neartie reads"
        print ".SH DESCRIPTION\nA record is a plain SQLite database. Every view works in the stock"
        print ".BR sqlite3 (1)\nshell (3.38 or later) and in Python's sqlite3, without an extension;"
        print ".B neartie sql\nruns statements over a file with the views of its own version."
        print "Questions with their SQL stand in\n.IR cookbook.md ,\nwhich is installed beside the SQL;"
        print ".B neartie queries\nlists and runs the queries that the reports are made of.\n.PP"
    }
    comment_block = ""
}
/^--/ { line = $0; sub(/^-- ?/, "", line); comment_block = comment_block (comment_block == "" ? "" : "\n") line; next }
/^$/ {
    if (FNR < 20 && comment_block != "") {
        if (files == 1) print roff(comment_block) "\n.SH TABLES"
        else print ".SH VIEWS\n" roff(comment_block)
        comment_block = ""
    }
    next
}
/^CREATE TABLE/ { name = $3; sub(/\(.*/, "", name); heading(name); in_table = 1; next }
in_table && /^\)/ { flush_column(); in_table = 0; next }
in_table { table_line($0); next }
/^CREATE VIEW/ { heading($6); in_view = 1; view = ""; next }
in_view { view = view "\n" $0; if (/;$/) { in_view = 0; end_view() } }
END {
    print ".SH SEE ALSO\n.BR neartie (1),\n.BR libprobe (7),\n.BR probe.h (3),\n.BR sqlite3 (1)"
}
