/* Floats as JSON numbers: every one reads back as the same bits, as a float and through a double,
 * whatever the locale. */
#include "config.h"

#include <ctype.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <sqlite3.h>
#include <stdint.h>
#include <stdlib.h>

#include "sql/print.h"
#include "tests/tap.h"

static float from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

/* Whether the text is a number by JSON's grammar. */
static int is_json(const char *t)
{
    t += *t == '-';
    if (!isdigit(*t) || (*t == '0' && isdigit(t[1])))
        return 0;
    while (isdigit(*t))
        t++;
    if (*t == '.') {
        if (!isdigit(*++t))
            return 0;
        while (isdigit(*t))
            t++;
    }
    if (*t == 'e' || *t == 'E') {
        t++;
        t += *t == '-' || *t == '+';
        if (!isdigit(*t))
            return 0;
        while (isdigit(*t))
            t++;
    }
    return !*t;
}

static const char *print(float x)
{
    static char text[4][64];
    static int turn;
    char *buf = text[turn++ % 4];
    *print_float(buf, x) = 0;
    return buf;
}

static int reads_back(float x)
{
    const char *text = print(x);
    float direct = strtof(text, NULL), twice = (float)strtod(text, NULL);
    int good =
        !memcmp(&direct, &x, 4) && !memcmp(&twice, &x, 4) && is_json(text) && strlen(text) <= 16;
    if (!good)
        diag("%a is printed as %s", (double)x, text);
    return good;
}

int main(void)
{
    uint64_t rng = 1;
    int good = 1;
    for (uint32_t e = 0; e < 255 && good; e++)
        for (int i = 0; i < 4000 && good; i++) {
            rng = rng * 6364136223846793005u + 1442695040888963407u;
            uint32_t mantissa = i < 3 ? (uint32_t[]){0, 1, 0x7fffff}[i] : (uint32_t)(rng >> 40);
            uint32_t bits = e << 23 | (mantissa & 0x7fffff);
            good = reads_back(from_bits(bits)) && reads_back(from_bits(bits | 0x80000000));
        }
    ok(good, "floats of every exponent read back as the same bits");
    good = 1;
    for (int i = -200000; i < 200000 && good; i++)
        good = reads_back((float)i / 1000) && reads_back((float)i);
    ok(good, "so do round numbers");
    is_str(print(12.5f), "12.5", "no zeros at the end");
    is_str(print(0.1f), "0.100000001", "nine digits where they are needed");
    is_str(print(100000), "100000", "a whole number");
    is_str(print(-0.0f), "-0.0", "the sign of zero stays");
    is_str(print(0), "0", "zero");
    is_str(print(INFINITY), "9e999", "infinity");
    is_str(print(-INFINITY), "-9e999", "minus infinity");
    is_str(print(0.000123456789f), "0.00012345679", "a small one");
    if (setlocale(LC_ALL, "de_DE.UTF-8"))
        is_str(print(1e-30f), "1e-30", "the locale changes nothing");
    else
        skip("the locale changes nothing", "this machine has no German locale");

    char text[32];
    good = 1;
    static const int32_t ints[] = {0, 1, -1, 9, 10, 248319, INT32_MAX, INT32_MIN};
    for (unsigned i = 0; i < sizeof ints / sizeof *ints; i++) {
        *print_int(text, ints[i]) = 0;
        good &= strtol(text, NULL, 10) == ints[i];
    }
    static const int64_t longs[] = {1 << 30, -(INT64_C(1) << 62), INT64_MAX, INT64_MIN};
    for (unsigned i = 0; i < sizeof longs / sizeof *longs; i++) {
        *print_long(text, longs[i]) = 0;
        good &= strtoll(text, NULL, 10) == longs[i];
    }
    ok(good, "integers");
    *print_hash(text, UINT64_C(0x0123456789abcdef)) = 0;
    is_str(text, "0123456789abcdef", "a hash has 16 digits");

    sqlite3 *db;
    sqlite3_stmt *st;
    good = !sqlite3_open(":memory:", &db) &&
           !sqlite3_prepare_v2(db,
                               "SELECT value ->> 0, value ->> 1 FROM json_each('[[9e999,-9e999]]')",
                               -1, &st, NULL) &&
           sqlite3_step(st) == SQLITE_ROW && sqlite3_column_double(st, 0) == (double)INFINITY &&
           sqlite3_column_double(st, 1) == -(double)INFINITY;
    sqlite3_finalize(st);
    sqlite3_close(db);
    ok(good, "SQLite reads them as infinities");
    return tap_done();
}
