# SPDX-License-Identifier: Apache-2.0
"""torch_gpt.py [seconds]: the small GPT of bench_nn with PyTorch on one thread, AdamW included.

4 layers, 4 heads, 128 wide, context 64, batch 12, 256 tokens. Prints milliseconds per step.
"""
import math
import sys
import time

import torch

torch.set_num_threads(1)
LAYERS, HEADS, WIDTH, CONTEXT, BATCH, VOCABULARY = 4, 4, 128, 64, 12, 256


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.qkv, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.up, self.down = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)
        self.register_buffer("mask", torch.triu(torch.ones(CONTEXT, CONTEXT, dtype=torch.bool), 1))

    def attend(self, x):
        q, k, v = (t.reshape(BATCH, CONTEXT, HEADS, -1).transpose(1, 2) for t in self.qkv(x).split(WIDTH, 2))
        scores = (q @ k.transpose(2, 3) / math.sqrt(WIDTH // HEADS)).masked_fill(self.mask, float("-inf"))
        return self.out((torch.softmax(scores, 3) @ v).transpose(1, 2).reshape(BATCH, CONTEXT, WIDTH))

    def forward(self, x):
        x = x + self.attend(self.ln_1(x))
        return x + self.down(torch.nn.functional.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class GPT(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = torch.nn.Embedding(VOCABULARY, WIDTH), torch.nn.Embedding(CONTEXT, WIDTH)
        self.blocks = torch.nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.ln_f = torch.nn.LayerNorm(WIDTH)

    def forward(self, tokens, targets):
        x = self.ln_f(self.blocks(self.wte(tokens) + self.wpe.weight))
        logits = x @ self.wte.weight.T
        return torch.nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY), targets.reshape(-1))


model = GPT()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
tokens = torch.randint(VOCABULARY, (BATCH, CONTEXT))
targets = torch.randint(VOCABULARY, (BATCH, CONTEXT))
seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 5
steps, start = -3, time.time()
while steps < 3 or time.time() - start < seconds:
    if steps == 0:
        start = time.time()
    optimizer.zero_grad()
    model(tokens, targets).backward()
    optimizer.step()
    steps += 1
print(f"PyTorch {torch.__version__}, 1 thread: {(time.time() - start) / steps * 1e3:.2f} ms per step, {steps} steps")
