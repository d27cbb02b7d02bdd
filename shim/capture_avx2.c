/* The capture for processors with AVX2; empty elsewhere. */
#ifdef __x86_64__
#pragma GCC target("avx2,fma")
#define LANES       8
#define CAPTURE_ROW capture_row_avx2
#include "shim/capture_pass.inc"
#else
typedef int capture_has_no_avx2; /* a file may not be empty */
#endif
