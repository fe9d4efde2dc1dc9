#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ctest: timeout=120
# Ten steps of each optimizer that PyTorch has too, through libtutti.so, against PyTorch's.
source "$(dirname "$0")/run.bash"
if [ -n "$SANITIZE" ]; then
    echo 'skipped: Python cannot load a sanitized library'
    exit 77
fi
python=
for candidate in python3 /usr/bin/python3; do
    "$candidate" -c 'import torch' 2>/dev/null && python=$candidate && break
done
if [ -z "$python" ]; then
    echo 'skipped: PyTorch was not found (Debian: python3-torch)'
    exit 77
fi
cat >compare.py <<'END'
import ctypes, os, torch
from ctypes import c_bool, c_char, c_char_p, c_double, c_float, c_int, c_size_t, c_uint64, c_void_p

class Parameter(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("value", c_void_p), ("gradient", c_void_p), ("count", c_size_t), ("decays", c_bool)]

class Settings(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("name", c_char_p), ("beta1", c_double), ("beta2", c_double),
                ("epsilon", c_double), ("decay", c_double), ("momentum", c_double), ("nesterov", c_bool)]

lib = ctypes.CDLL(os.environ["BUILD"] + "/libtutti.so")
lib.tutti_optimizer_step.argtypes = [c_void_p, c_double, c_double]
error = ctypes.create_string_buffer(1024)

def ours(name, start, gradients, rate, changes):
    value, gradient, settings, optimizer = start.clone(), torch.empty_like(start), Settings(), c_void_p()
    assert lib.tutti_optimizer_defaults(name.encode(), ctypes.byref(settings), error) == 0
    for key, number in changes.items():
        setattr(settings, key, number)
    one = Parameter(b"w", value.data_ptr(), gradient.data_ptr(), value.numel(), True)
    assert lib.tutti_optimizer_create(ctypes.byref(settings), ctypes.byref(one), c_size_t(1), ctypes.byref(optimizer), error) == 0
    for g in gradients:
        gradient.copy_(2 * g)  # halved by the scale
        lib.tutti_optimizer_step(optimizer, rate, 0.5)
    lib.tutti_optimizer_free(optimizer)
    return value

def theirs(make, start, gradients):
    value = start.clone().requires_grad_()
    optimizer = make([value])
    for g in gradients:
        value.grad = g.clone()
        optimizer.step()
    return value.detach()

torch.manual_seed(1)
start, gradients, o = torch.randn(10001), [torch.randn(10001) for _ in range(10)], torch.optim
rows = [
    ("sgd", dict(momentum=0.9, decay=0.01), lambda p: o.SGD(p, lr=0.01, momentum=0.9, weight_decay=0.01)),
    ("sgd", dict(momentum=0.9, nesterov=True), lambda p: o.SGD(p, lr=0.01, momentum=0.9, nesterov=True)),
    ("adam", dict(decay=0.01), lambda p: o.Adam(p, lr=0.01, weight_decay=0.01)),
    ("adamw", dict(beta2=0.95, decay=0.1), lambda p: o.AdamW(p, lr=0.01, betas=(0.9, 0.95), weight_decay=0.1)),
]
for name, changes, make in rows:
    difference = (ours(name, start, gradients, 0.01, changes) - theirs(make, start, gradients)).abs().max().item()
    print(name, changes, difference)
    assert difference < 2e-6, name
END
OUT=$("$python" compare.py 2>&1)
check 'status' 0 $?
matches 'all were compared' '^adamw .* [0-9.e-]+$' "$OUT"
echo "$OUT"
finish
