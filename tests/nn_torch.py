# SPDX-License-Identifier: Apache-2.0
"""nn_torch.py FOLDER: trains the model that test_nn_torch has written down once more with PyTorch, and compares.

FOLDER has shape.json and raw f32 or i32 files: one per tensor and state ("before", "gradient", "after"), one per layer
("output"), tokens, targets.
Prints what differs; exit 0 when nothing does.
"""
import json
import math
import sys

import torch

folder = sys.argv[1]
with open(folder + "/shape.json") as file:
    shape = json.load(file)
heads, width, context = shape["heads"], shape["width"], shape["context"]


def read(name, dims, dtype=torch.float32):
    with open(f"{folder}/{name}", "rb") as data:
        return torch.frombuffer(bytearray(data.read()), dtype=dtype).reshape(dims)


def keep(name, x):  # what a layer gives, to be compared
    outputs[name] = x.detach()
    return x


def norm(x, name):
    weight, bias = tensors[name + ".weight"], tensors[name + ".bias"]
    return keep(name, torch.nn.functional.layer_norm(x, (width,), weight, bias, 1e-5))


def linear(x, name):  # GPT-2's Conv1D: the weight is (inputs, outputs)
    return x @ tensors[name + ".weight"] + tensors[name + ".bias"]


def attention(x, name):
    samples = x.shape[0]
    q, k, v = (t.reshape(samples, context, heads, width // heads).transpose(1, 2) for t in x.split(width, 2))
    scores = q @ k.transpose(2, 3) / math.sqrt(width // heads)
    scores = scores.masked_fill(torch.triu(torch.ones(context, context, dtype=torch.bool), 1), float("-inf"))
    return keep(name, (torch.softmax(scores, 3) @ v).transpose(1, 2).reshape(samples, context, width))


def gelu(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def block(x, name):  # a residual's sum belongs to its last layer
    qkv = keep(name + ".attn.c_attn", linear(norm(x, name + ".ln_1"), name + ".attn.c_attn"))
    projection = name + ".attn.c_proj"
    x = keep(projection, x + linear(attention(qkv, name + ".attn"), projection))
    inner = keep(name + ".mlp.c_fc", gelu(linear(norm(x, name + ".ln_2"), name + ".mlp.c_fc")))
    return keep(name + ".mlp.c_proj", x + linear(inner, name + ".mlp.c_proj"))


def loss_of():
    x = keep("wte", tensors["wte.weight"][tokens] + tensors["wpe.weight"])
    for i in range(shape["layers"]):
        x = block(x, f"h.{i}")
    logits = norm(x, "ln_f") @ tensors["wte.weight"].T
    return torch.nn.functional.cross_entropy(logits.reshape(-1, shape["vocabulary"]), targets.reshape(-1))


wrong, outputs = 0, {}


def compare(what, seen, expected, tolerance):
    global wrong
    error = ((seen - expected).abs().max() / (expected.abs().max() + 1e-12)).item()
    if not error < tolerance:
        wrong += 1
        print(f"{what}: off by {error:.2e} of its largest element")


tokens = read("tokens", (-1, context), torch.int32).long()
targets = read("targets", (-1, context), torch.int32).long()
tensors = {t["name"]: read(t["name"] + ".before", t["shape"]).requires_grad_() for t in shape["tensors"]}
groups = [
    {"params": [t for t in tensors.values() if t.dim() >= 2], "weight_decay": shape["decay"]},
    {"params": [t for t in tensors.values() if t.dim() < 2], "weight_decay": 0.0},
]
optimizer = torch.optim.AdamW(groups, lr=shape["rate"], betas=(0.9, 0.999), eps=1e-8)
for step in range(shape["steps"]):
    optimizer.zero_grad()
    loss = loss_of()
    loss.backward()
    if step == 0:
        compare("loss", torch.tensor(shape["loss"]), loss.detach(), 1e-5)
        for name, output in outputs.items():
            compare(name + " output", read(name + ".output", output.shape), output, 1e-5)
        for name, tensor in tensors.items():
            compare(name + " gradient", read(name + ".gradient", tensor.shape), tensor.grad, 1e-4)
    optimizer.step()
for name, tensor in tensors.items():
    compare(f"{name} after {shape['steps']} steps", read(name + ".after", tensor.shape), tensor.detach(), 2e-3)
print(f"PyTorch {torch.__version__}: {len(outputs)} layers, {len(tensors)} tensors, {shape['steps']} AdamW steps, {wrong} differ")
sys.exit(1 if wrong else 0)
