/* TAP for the C tests: plan at the end, one line a case, a skip always has a reason.
 * A test program calls ok()/is_*() any number of times and ends with `return tap_done();`. */
#ifndef NEARTIE_TESTS_TAP_H
#define NEARTIE_TESTS_TAP_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int tap_n, tap_failed;

/* Report one case; the name is formatted as by printf. Returns pass, so that a caller can add
 * diagnostics. */
__attribute__((format(printf, 2, 3))) static inline int ok(int pass, const char *fmt, ...)
{
    va_list ap;
    printf("%sok %d - ", pass ? "" : "not ", ++tap_n);
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    putchar('\n');
    fflush(stdout);
    tap_failed += !pass;
    return pass;
}

/* Print one diagnostic line. */
__attribute__((format(printf, 1, 2))) static inline void diag(const char *fmt, ...)
{
    va_list ap;
    fputs("# ", stdout);
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    putchar('\n');
}

#define skip(name, ...)                                                                            \
    do {                                                                                           \
        printf("ok %d - %s # SKIP ", ++tap_n, name);                                               \
        printf(__VA_ARGS__);                                                                       \
        putchar('\n');                                                                             \
    } while (0)

#define is_int(got, want, ...)                                                                     \
    do {                                                                                           \
        long long g_ = (got), w_ = (want);                                                         \
        if (!ok(g_ == w_, __VA_ARGS__))                                                            \
            diag("got %lld, want %lld", g_, w_);                                                   \
    } while (0)

#define is_str(got, want, ...)                                                                     \
    do {                                                                                           \
        const char *g_ = (got), *w_ = (want);                                                      \
        if (!ok(g_ && w_ && !strcmp(g_, w_), __VA_ARGS__))                                         \
            diag("got \"%s\", want \"%s\"", g_ ? g_ : "(null)", w_ ? w_ : "(null)");               \
    } while (0)

/* Folder of the third-party test data, or NULL where it is absent. */
static inline const char *tap_shared(void)
{
    const char *dir = getenv("NEARTIE_SHARED");
    return dir && *dir ? dir : NULL;
}

static inline int tap_done(void)
{
    printf("1..%d\n", tap_n);
    return tap_failed != 0;
}

#endif
