# Turn sql/*.sql into one C file: q_top.sql becomes `const char sql_q_top[]`.
FNR == 1 {
    if (open) print "    \"\";\n"
    name = FILENAME
    sub(/.*\//, "", name)
    sub(/\.sql$/, "", name)
    if (!started) print "/* Made by embed.awk. */\n#include \"sql/sql_text.h\"\n"
    started = open = 1
    names[++n] = name
    printf "const char sql_%s[] =\n", name
}
{
    gsub(/\\/, "\\\\")
    gsub(/"/, "\\\"")
    printf "    \"%s\\n\"\n", $0
}
END {
    if (open) print "    \"\";\n"
    print "const struct sql_text sql_texts[] = {"
    for (i = 1; i <= n; i++) printf "    {\"%s\", sql_%s},\n", names[i], names[i]
    print "    {0, 0},\n};"
}
