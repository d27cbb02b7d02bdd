/* Packing of float rows into weight types, for the model generator and the tests: plain rounding to
 * the nearest level, without the searches that better quantisers do. The engine packs only what
 * kernels/quant.h packs. */
#ifndef NEARTIE_TESTS_PACK_H
#define NEARTIE_TESTS_PACK_H

#include <stdbool.h>
#include <stdint.h>

/* Can rows of this type be packed? So for every type that has values. */
bool pack_has(uint32_t type);

/* Pack n finite values, n a multiple of the type's block. */
void pack_row(uint32_t type, const float *x, void *out, int64_t n);

#endif
