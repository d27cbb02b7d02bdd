/* The cells of one row that a scan hands out (db_each in collector/db.h), by number: inline, since
 * scans read hundreds of millions of them. */
#ifndef NEARTIE_COLLECTOR_CELLS_H
#define NEARTIE_COLLECTOR_CELLS_H

#include <math.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cells {
    sqlite3_value **values; /* borrowed for the call */
};

static inline bool cell_is_null(struct cells cells, int i)
{
    return sqlite3_value_type(cells.values[i]) == SQLITE_NULL;
}

static inline int64_t cell_int(struct cells cells, int i)
{
    return sqlite3_value_int64(cells.values[i]);
}

static inline double cell_real(struct cells cells, int i)
{
    return cell_is_null(cells, i) ? NAN : sqlite3_value_double(cells.values[i]);
}

/* No NUL behind. */
static inline const void *cell_bytes(struct cells cells, int i, size_t *n_bytes)
{
    const void *bytes = sqlite3_value_blob(cells.values[i]);
    *n_bytes = (size_t)sqlite3_value_bytes(cells.values[i]);
    return bytes ? bytes : "";
}

#endif
