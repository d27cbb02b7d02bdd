/* Reading all rows of two arms: ranges of row_id are spread over the processors. */
#ifndef NEARTIE_COLLECTOR_SCAN_H
#define NEARTIE_COLLECTOR_SCAN_H

#include "collector/arm_rows.h"

/* Fill rows[0] from side a and rows[1] from side b. They are the caller's to free, in every case.
 */
int scan_arms(const struct load_side *a, const struct load_side *b, struct arm_rows rows[2],
              struct err *err);

#endif
