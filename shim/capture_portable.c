/* The capture for any processor: 128-bit vectors, in whatever way the compiler has them. */
#define LANES       4
#define CAPTURE_ROW capture_row_portable
#include "shim/capture_pass.inc"
