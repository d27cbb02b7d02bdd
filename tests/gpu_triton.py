"""A Triton kernel, in a file of its own, whose text its compiler reads: for gpu_programs.py."""
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(out, x, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, mask=at < n, other=float("-inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(out + row * n + at, e / tl.sum(e, 0), mask=at < n)
