/* Several records into one file: every table, ids numbered anew (sql/merge.sql). The file appears
 * under its name when it is whole, and never takes the place of another. */
#ifndef NEARTIE_COLLECTOR_MERGE_H
#define NEARTIE_COLLECTOR_MERGE_H

#include "err.h"

/* Refuses, and leaves nothing behind: a path that exists, a run that two files have, a run that is
 * still recording. A merge that was killed leaves PATH-merge, which the next one takes over. */
int merge_files(const char *path, char *const *sources, int n, struct err *err);

#endif
