/* Where the noise floor of a verdict comes from: a control that the user names, a calibration
 * stored in the file, or the prior of the class; and the words that say which. */
#ifndef NEARTIE_COLLECTOR_CONTROL_H
#define NEARTIE_COLLECTOR_CONTROL_H

#include "collector/infer.h"

enum control_kind { CONTROL_INFER, CONTROL_SAME, CONTROL_OTHER };

struct control {
    struct floor floor;
    struct pairs *pairs; /* the control's rows, NULL without; owned */
    char words[256];     /* "run 1 prefill against decode (same kind)" */
};

/* Decide and measure. name: NULL, "none", the label of a stored calibration, "ARM:ARM" or "ARM,ARM"
 * of the file of side b, or another file; ulp: see verdict_grid. */
int control_open(struct control *out, const char *name, enum control_kind kind,
                 enum floor_class cls, double ulp, const struct load_side *a,
                 const struct load_side *b, struct err *err);
void control_close(struct control *control);

#endif
