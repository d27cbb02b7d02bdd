/* What a call of a driver function means to the tagger: one table for both back ends. A call is
 * known by its row's index; its arguments are given as a structure of words, in their order. */
#ifndef NEARTIE_SHIM_CALLS_H
#define NEARTIE_SHIM_CALLS_H

#include <stdbool.h>
#include <stdint.h>

#include "shim/cupti_abi.h"

struct tags_thread;

int calls_count(void);
uint16_t calls_id(int index); /* enum cupti_id */

/* Whether it is one that a recording begins with: something is launched. */
bool calls_starts(int index);

/* Before the driver runs it, and after. symbol: the kernel's name, where the caller knows it. */
void calls_enter(struct tags_thread *t, int index, const void *params, const char *symbol);
void calls_exit(struct tags_thread *t, int index, const void *params, bool failed);

#endif
