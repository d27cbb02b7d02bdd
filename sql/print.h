/* Numbers as text, fast and whatever the host's locale is. Each appends at p, without a terminator,
 * and returns the end. */
#ifndef NEARTIE_SQL_PRINT_H
#define NEARTIE_SQL_PRINT_H

#include <stdint.h>

/* At most 16 bytes: a JSON number that reads back as the same float, also through a double. JSON
 * has no infinity: 9e999 is beyond every double, and SQLite and Python read it as one. x is no NaN.
 */
char *print_float(char *p, float x);

/* At most 11 bytes. */
char *print_int(char *p, int32_t x);

/* At most 20 bytes. */
char *print_long(char *p, int64_t x);

/* 16 hex digits. */
char *print_hash(char *p, uint64_t x);

#endif
