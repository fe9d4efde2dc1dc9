# SPDX-License-Identifier: Apache-2.0
"""gpt2_checkpoint.py CHECKPOINT torch|transformers: whether others load a checkpoint and think of every token what we do.

With transformers, GPT2LMHeadModel.from_pretrained does it; with torch alone, the few lines below, from config.json and
model.safetensors. Ours are the logits of tutti_sampler_logits in libtutti.so, found in the folder $BUILD.
"""
import ctypes
import json
import math
import os
import struct
import sys

import torch

folder, how = sys.argv[1:]
with open(folder + "/config.json") as file:
    config = json.load(file)


def ours(tokens):
    lib, sampler = ctypes.CDLL(os.environ["BUILD"] + "/libtutti.so"), ctypes.c_void_p()
    error, logits = ctypes.create_string_buffer(4096), torch.empty(len(tokens), config["vocab_size"])
    ids = (ctypes.c_int32 * len(tokens))(*tokens)
    assert lib.tutti_sampler_create(folder.encode(), ctypes.byref(sampler), error) == 0, error.raw
    for i in range(len(tokens)):
        row = ctypes.c_void_p(logits[i].data_ptr())
        assert lib.tutti_sampler_logits(sampler, ids, ctypes.c_size_t(i + 1), row, error) == 0, error.raw
    lib.tutti_sampler_free(sampler)
    return logits


def read_safetensors(path):
    with open(path, "rb") as file:
        data = file.read()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    assert header.pop("__metadata__") == {"format": "pt"}
    tensors = {}
    for name, about in header.items():
        assert about["dtype"] == "F32"
        begin, end = about["data_offsets"]
        part = bytearray(data[8 + length + begin : 8 + length + end])
        tensors[name] = torch.frombuffer(part, dtype=torch.float32).reshape(about["shape"])
    return tensors


def with_torch(tokens):
    assert config["model_type"] == "gpt2" and config["activation_function"] == "gelu_new"
    assert config["architectures"] == ["GPT2LMHeadModel"] and config["tie_word_embeddings"]
    w, width, heads = read_safetensors(folder + "/model.safetensors"), config["n_embd"], config["n_head"]

    def norm(x, name):
        epsilon = config["layer_norm_epsilon"]
        return torch.nn.functional.layer_norm(x, (width,), w[name + ".weight"], w[name + ".bias"], epsilon)

    def project(x, name):  # Conv1D: the weight is (inputs, outputs)
        return x @ w[name + ".weight"] + w[name + ".bias"]

    def attend(x):
        q, k, v = (t.reshape(-1, heads, width // heads).transpose(0, 1) for t in x.split(width, 1))
        scores = q @ k.transpose(1, 2) / math.sqrt(width // heads)
        mask = torch.triu(torch.ones(scores.shape[1:], dtype=torch.bool), 1)
        return (torch.softmax(scores.masked_fill(mask, -math.inf), 2) @ v).transpose(0, 1).reshape(-1, width)

    x = w["wte.weight"][tokens] + w["wpe.weight"][: len(tokens)]
    for i in range(config["n_layer"]):
        x = x + project(attend(project(norm(x, f"h.{i}.ln_1"), f"h.{i}.attn.c_attn")), f"h.{i}.attn.c_proj")
        inner = torch.nn.functional.gelu(project(norm(x, f"h.{i}.ln_2"), f"h.{i}.mlp.c_fc"), approximate="tanh")
        x = x + project(inner, f"h.{i}.mlp.c_proj")
    return norm(x, "ln_f") @ w["wte.weight"].T


def with_transformers(tokens):
    import transformers

    model, about = transformers.GPT2LMHeadModel.from_pretrained(folder, output_loading_info=True)
    # The output layer is the embedding, so it is in no file.
    assert set(about["missing_keys"]) <= {"lm_head.weight"} and not about["unexpected_keys"], about
    with torch.no_grad():
        return model.eval()(torch.tensor([tokens])).logits[0]


tokens = [(7 * i * i + 3 * i) % config["vocab_size"] for i in range(config["n_positions"])]
mine, other = ours(tokens), (with_transformers if how == "transformers" else with_torch)(tokens)
worst = ((mine - other).abs().max() / other.abs().max()).item()
spread = (other.max(1).values - other.min(1).values).min().item()
print(f"{how}: logits of {len(tokens)} tokens differ by {worst:.1e} of the largest; each row spans {spread:.2f} or more")
sys.exit(0 if worst < 1e-4 and spread > 0.1 else 1)
