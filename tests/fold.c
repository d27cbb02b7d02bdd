/* Fold what a dead process left beside a database into it, as every reader does at need.
 *   fold DB    prints "N rows, N torn" and leaves with 0, or with 1 and the reason on stderr */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>

#include "sql/recover.h"

int main(int argc, char **argv)
{
    struct recovery r;
    struct err err;
    if (argc != 2)
        return 2;
    if (recover_database(argv[1], &r, &err) < 0) {
        fprintf(stderr, "fold: %s\n", err.text);
        return 1;
    }
    printf("%" PRIu64 " rows, %" PRIu64 " torn\n", r.n_rows, r.n_torn);
    return 0;
}
