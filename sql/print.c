#include "config.h"

#include "sql/print.h"

#include <math.h>
#include <sqlite3.h>
#include <string.h>

enum { DIGITS = 9, LOWEST = -5, HIGHEST = 8 }; /* nine digits tell any two floats apart */

static const double powers[] = {1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1e0,  1e1,  1e2,  1e3, 1e4,
                                1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11, 1e12, 1e13};

static double power(int n)
{
    return powers[n - LOWEST];
}

char *print_long(char *p, int64_t x)
{
    char digits[20];
    int n = 0;
    uint64_t rest = x < 0 ? -(uint64_t)x : (uint64_t)x;
    do
        digits[n++] = (char)('0' + rest % 10);
    while ((rest /= 10) != 0);
    if (x < 0)
        *p++ = '-';
    while (n > 0)
        *p++ = digits[--n];
    return p;
}

char *print_int(char *p, int32_t x)
{
    return print_long(p, x);
}

char *print_hash(char *p, uint64_t x)
{
    for (int shift = 60; shift >= 0; shift -= 4)
        *p++ = "0123456789abcdef"[x >> shift & 15];
    return p;
}

/* n digits of value, its leading zeros too. */
static void print_digits(char *p, uint64_t value, int n)
{
    for (int i = n - 1; i >= 0; i--, value /= 10)
        p[i] = (char)('0' + value % 10);
}

/* x in 1e-5 ... 1e9, as %.9g writes it: nine digits, without the zeros at the end. The one rounding
 * of the product is far below half a unit of the ninth digit. */
static char *print_plain(char *p, double x)
{
    char digits[DIGITS];
    int e = LOWEST, n = DIGITS;
    while (e < HIGHEST && x >= power(e + 1))
        e++;
    uint64_t scaled = (uint64_t)(x * power(DIGITS - 1 - e) + 0.5);
    if (scaled >= 1000000000) {
        scaled /= 10;
        e++;
    }
    print_digits(digits, scaled, DIGITS);
    while (n > 1 && digits[n - 1] == '0')
        n--;
    if (e < 0) {
        *p++ = '0';
        *p++ = '.';
        for (int i = -1; i > e; i--)
            *p++ = '0';
        memcpy(p, digits, (size_t)n);
        return p + n;
    }
    for (int i = 0; i <= e || i < n; i++) {
        if (i == e + 1)
            *p++ = '.';
        *p++ = i < n ? digits[i] : '0';
    }
    return p;
}

char *print_float(char *p, float x)
{
    char text[32];
    if (signbit(x))
        *p++ = '-';
    double size = fabs((double)x);
    if (isinf(x))
        strcpy(text, "9e999");
    else if (size == 0)
        strcpy(text, signbit(x) ? "0.0" : "0"); /* -0 alone would be an integer */
    else if (size >= power(LOWEST) && size < power(HIGHEST + 1))
        return print_plain(p, size);
    else
        sqlite3_snprintf(sizeof text, text, "%.9g", size);
    size_t n = strlen(text);
    memcpy(p, text, n);
    return p + n;
}
