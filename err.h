/* The one error convention of neartie: a function returns 0 (ok) or -1 (failed) and takes a
 * struct err as its last argument. The function that first knows the cause fills it, once, with
 * the object and both values; every caller only passes it on. Valid C and C++. */
#ifndef NEARTIE_ERR_H
#define NEARTIE_ERR_H

#include <stdarg.h>
#include <stdio.h>

struct err {
    char text[512]; /* one line, lower case, "object: cause", no full stop; empty = no error */
};

/* Set the message, formatted as by printf; return -1, so that a caller can `return err_set(...)`.
 * err may be NULL where the caller does not want the text. */
__attribute__((format(printf, 2, 3))) static inline int err_set(struct err *err, const char *fmt,
                                                                ...)
{
    if (err) {
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(err->text, sizeof err->text, fmt, ap);
        va_end(ap);
    }
    return -1;
}

#endif
