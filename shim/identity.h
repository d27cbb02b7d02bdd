/* Who is recording: what `runs` says of this process. */
#ifndef NEARTIE_SHIM_IDENTITY_H
#define NEARTIE_SHIM_IDENTITY_H

#include "sql/record.h"

/* Fill every member; what cannot be found out stays empty. */
void identity_fill(struct run_identity *run);

#endif
