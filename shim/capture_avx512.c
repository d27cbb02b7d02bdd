/* The capture for processors with AVX-512; empty elsewhere. */
#ifdef __x86_64__
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")
#define LANES       16
#define CAPTURE_ROW capture_row_avx512
#include "shim/capture_pass.inc"
#else
typedef int capture_has_no_avx512; /* a file may not be empty */
#endif
