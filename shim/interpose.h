/* The interposing back end of the tagger: the driver's functions are wrapped, for programs that
 * have the library preloaded. It needs no CUPTI and adds nothing to the device. The functions reach
 * a program by three ways, and each is covered: linked, by dlsym, and by cuGetProcAddress. */
#ifndef NEARTIE_SHIM_INTERPOSE_H
#define NEARTIE_SHIM_INTERPOSE_H

#include <stdbool.h>

/* Whether calls are taken note of, rather than passed through: the library is preloaded, and
 * PROBE_CUPTI does not say otherwise. Decided at the first question. */
bool interpose_active(void);

/* Another back end is tried, within cuInit: pass calls through meanwhile. */
void interpose_wait(void);
/* It was refused: take note of calls from now on. Returns whether that can be, that is, whether the
 * library is preloaded and PROBE_CUPTI allows it. */
bool interpose_take_over(void);

#endif
