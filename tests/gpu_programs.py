"""Programs as people write them, for gpu_programs.sh: each prints what it has computed, to the last
bit, so that a probe in the process must leave it as it is.

usage: gpu_programs.py NAME,...   (eager graphs compile profiler fork spawn generate cublas cudnn triton
                                   cupy jax; several run one behind the other in one process)

Exit status: of the first that has one; 77 with the reason where the machine has not what they take.
"""
import sys


class Missing(Exception):
    pass


def need(name):
    try:
        return __import__(name)
    except ImportError as e:
        raise Missing(f"{name}: {e}") from e


def show(name, x):
    """A tensor as its sum and some of its entries, in hexadecimal."""
    flat = x.detach().double().flatten().cpu()
    some = flat[:: max(1, flat.numel() // 4)][:4]
    print(name, tuple(x.shape), flat.sum().item().hex(), *(v.item().hex() for v in some))


def block(torch, device="cuda"):
    torch.manual_seed(1)
    nn = torch.nn
    return nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.LayerNorm(1024), nn.Linear(1024, 256)).to(device)


def eager():
    torch = need("torch")
    model = block(torch)
    optimizer = torch.optim.SGD(model.parameters(), lr=.01)
    x = torch.randn(64, 256, device="cuda")
    for _ in range(20):
        loss = (model(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    show("loss", loss)
    show("out", model(x))
    q = torch.randn(2, 8, 128, 64, device="cuda", dtype=torch.bfloat16)
    show("attention", torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True))
    show("sorted", torch.randn(10000, device="cuda").sort().values)
    return 3  # an exit status of its own


def graphs():
    torch = need("torch")
    model, x = block(torch).eval(), torch.randn(8, 256, device="cuda")
    with torch.no_grad():
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(3):
                model(x)
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = model(x)
            z = torch.softmax(y, -1)
        for _ in range(50):
            x.mul_(1.01)
            graph.replay()
        show("graph", z)


def compile():  # pylint: disable=redefined-builtin
    torch = need("torch")
    model, x = block(torch).eval(), torch.randn(8, 256, device="cuda")
    with torch.no_grad():
        for mode in ("default", "reduce-overhead"):
            fast = torch.compile(model, mode=mode)
            for _ in range(4):
                y = fast(x).clone()
            show(mode, y)
            torch._dynamo.reset()


def profiler():
    torch = need("torch")
    from torch.profiler import ProfilerActivity, profile
    model, x = block(torch), torch.randn(64, 256, device="cuda")
    model(x).sum().backward()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as p:
        for _ in range(5):
            y = model(x)
            y.sum().backward()
        torch.cuda.synchronize()
    show("out", y)
    kernels = sorted((e.key, e.count) for e in p.key_averages() if e.device_type == torch.autograd.DeviceType.CUDA)
    print(len(kernels), sum(n for _, n in kernels))
    for name, n in kernels:
        print(n, name[:100])


class Numbers:
    def __len__(self):
        return 64

    def __getitem__(self, i):
        import torch
        return torch.full((256,), float(i))


def loader(how):
    torch = need("torch")
    model = block(torch)
    from torch.utils.data import DataLoader
    for batch in DataLoader(Numbers(), batch_size=16, num_workers=3, multiprocessing_context=how, pin_memory=True):
        show(how, model(batch.cuda(non_blocking=True)))


def fork():
    loader("fork")


def spawn():
    loader("spawn")


def generate():
    torch = need("torch")
    need("transformers")
    from transformers import LlamaConfig, LlamaForCausalLM
    torch.manual_seed(1)
    model = LlamaForCausalLM(LlamaConfig(hidden_size=256, intermediate_size=512, num_hidden_layers=4, eos_token_id=None,
                                         num_attention_heads=8, vocab_size=32000)).to("cuda", torch.bfloat16).eval()
    ids = torch.randint(3, 32000, (4, 16), generator=torch.Generator().manual_seed(2)).cuda()
    out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=24, do_sample=False, pad_token_id=0)
    for row in out.tolist():
        print(*row)


def cublas():
    torch = need("torch")
    torch.manual_seed(1)
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        a, b = (torch.randn(512, 512, device="cuda", dtype=dtype) for _ in range(2))
        show(f"matmul {dtype}", a @ b)
        show(f"addmm {dtype}", torch.addmm(a[0], a, b))
        show(f"bmm {dtype}", torch.bmm(a.view(4, 128, 512), b.view(4, 512, 128)))
        show(f"gemv {dtype}", a @ b[0])
    a = torch.randint(-8, 8, (64, 64), device="cuda", dtype=torch.int8)
    show("int8", torch._int_mm(a, a))


def cudnn():
    torch = need("torch")
    torch.manual_seed(1)
    torch.backends.cudnn.deterministic = True
    print("cuDNN", torch.backends.cudnn.version())
    for dtype in (torch.float32, torch.float16):
        x = torch.randn(4, 16, 32, 32, device="cuda", dtype=dtype, requires_grad=True)
        conv = torch.nn.Conv2d(16, 32, 3, padding=1).to("cuda", dtype)
        y = torch.nn.BatchNorm2d(32).to("cuda", dtype)(conv(x))
        y.float().square().mean().backward()
        show(f"conv {dtype}", y)
        show(f"grad {dtype}", x.grad)
    rnn = torch.nn.LSTM(64, 64, 2).cuda()
    show("lstm", rnn(torch.randn(10, 4, 64, device="cuda"))[0])


def triton():
    torch, tr = need("torch"), need("triton")
    import gpu_triton
    x = torch.randn(100, 1000, device="cuda", generator=torch.Generator("cuda").manual_seed(1))
    y = torch.empty_like(x)
    gpu_triton.softmax_kernel[(100,)](y, x, 1000, BLOCK=1024)
    show("softmax", y)
    print("close", torch.allclose(y, torch.softmax(x, -1), atol=1e-6), tr.__version__)


def cupy():
    cp = need("cupy")
    a = cp.arange(1 << 16, dtype=cp.float32).reshape(256, 256) / 7
    kernel = cp.RawKernel(r"""extern "C" __global__ void twice(float *x) { x[threadIdx.x + blockIdx.x * blockDim.x] *= 2; }""", "twice")
    kernel((256,), (256,), (a,))
    print(float((a @ a).sum()).hex(), float(cp.sqrt(a).mean()).hex(), float(cp.sort(a.ravel())[1000]).hex())


def jax():
    j = need("jax")
    import jax.numpy as jnp
    if not any(d.platform == "gpu" for d in j.devices()):
        raise Missing("JAX sees no GPU")
    x = j.random.normal(j.random.key(1), (512, 512))

    @j.jit
    def f(x):
        for _ in range(4):
            x = jnp.tanh(x @ x.T / 20)
        return j.nn.softmax(x).sum(0)

    for _ in range(5):
        y = f(x)
    print(float(y.sum()).hex(), float(y[7]).hex())


def main():
    names, status, missing = sys.argv[1].split(","), 0, []
    for name in names:
        print("==", name)
        try:
            status = globals()[name]() or status
        except Missing as e:
            missing.append(str(e))
            print(e)
    return 77 if len(missing) == len(names) else status


if __name__ == "__main__":
    sys.exit(main())
