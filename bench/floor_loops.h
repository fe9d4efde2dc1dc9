/* SPDX-License-Identifier: Apache-2.0
 *
 * The four loops of the floor, for one instruction set; floor_kernels.h includes it once for each, with these defined:
 *   SUM_LOOP SUM PREFIX SWAP STREAM_COPY    names of the functions
 *   TARGET                      attribute that allows the instructions
 *   VEC LOAD ADD STORE STREAM   a vector of 64 bytes or less, and what can be done with it
 * Bytes are multiples of 64 (and so of a vector), pointers are aligned to 64. Outputs may be inputs: a line is read
 * before it is written.
 */

/* Adds all inputs and writes the sum to all outputs; one input: a copy. Inlined with constant numbers of them, FEW each
 * at most, the pointers stay in registers. */
__attribute__((always_inline)) TARGET static inline void SUM_LOOP(const char *const *in, int ins, char *const *out,
                                                                  int outs, size_t bytes, bool stream)
{
    const char *from[FEW];
    char *to[FEW];
    for (int i = 0; i < ins && ins <= FEW; i++) from[i] = in[i];
    for (int i = 0; i < outs && outs <= FEW; i++) to[i] = out[i];
    if (ins <= FEW) in = from;
    if (outs <= FEW) out = to;
    const size_t step = 4 * sizeof(VEC);
    const size_t wide = bytes - bytes % step;
    size_t at = 0;
    for (; at < wide; at += step) {
        const char *p = in[0] + at;
        VEC a = LOAD(p), b = LOAD(p + sizeof(VEC)), c = LOAD(p + 2 * sizeof(VEC)), d = LOAD(p + 3 * sizeof(VEC));
        for (int i = 1; i < ins; i++) {
            p = in[i] + at;
            a = ADD(a, LOAD(p));
            b = ADD(b, LOAD(p + sizeof(VEC)));
            c = ADD(c, LOAD(p + 2 * sizeof(VEC)));
            d = ADD(d, LOAD(p + 3 * sizeof(VEC)));
        }
        for (int i = 0; i < outs; i++) {
            char *q = out[i] + at;
            if (stream) {
                STREAM(q, a);
                STREAM(q + sizeof(VEC), b);
                STREAM(q + 2 * sizeof(VEC), c);
                STREAM(q + 3 * sizeof(VEC), d);
            } else {
                STORE(q, a);
                STORE(q + sizeof(VEC), b);
                STORE(q + 2 * sizeof(VEC), c);
                STORE(q + 3 * sizeof(VEC), d);
            }
        }
    }
    for (; at < bytes; at += sizeof(VEC)) {
        VEC a = LOAD(in[0] + at);
        for (int i = 1; i < ins; i++) a = ADD(a, LOAD(in[i] + at));
        for (int i = 0; i < outs; i++) STORE(out[i] + at, a);
    }
}

TARGET static void SUM(const char *const *in, int ins, char *const *out, int outs, size_t bytes, bool stream)
{
    if (ins == 1 && outs == 1)
        SUM_LOOP(in, 1, out, 1, bytes, stream);
    else if (ins == 1 && outs == 2)
        SUM_LOOP(in, 1, out, 2, bytes, stream);
    else if (ins == 2 && outs == 1)
        SUM_LOOP(in, 2, out, 1, bytes, stream);
    else if (ins == 2 && outs == 2)
        SUM_LOOP(in, 2, out, 2, bytes, stream);
    else if (ins == 4 && outs == 4)
        SUM_LOOP(in, 4, out, 4, bytes, stream);
    else
        SUM_LOOP(in, ins, out, outs, bytes, stream);
}

/* Output i is the sum of inputs 0..i or, exclusive, 0..i-1 (output 0 is not written, the last input not read). */
TARGET static void PREFIX(const char *const *in, char *const *out, int ranks, size_t bytes, bool exclusive, bool stream)
{
    for (size_t at = 0; at < bytes; at += sizeof(VEC)) {
        VEC sum = LOAD(in[0] + at);
        if (!exclusive) STORE(out[0] + at, sum);
        for (int i = 1; i < ranks; i++) {
            VEC before = sum;
            if (!exclusive || i + 1 < ranks) sum = ADD(sum, LOAD(in[i] + at));
            if (stream)
                STREAM(out[i] + at, exclusive ? before : sum);
            else
                STORE(out[i] + at, exclusive ? before : sum);
        }
    }
}

/* Looks further ahead than the hardware does. */
TARGET static void STREAM_COPY(const char *in, char *const *out, int outs, size_t bytes)
{
    char *first = out[0];
    for (size_t line = 0; line < bytes; line += 64) {
        __builtin_prefetch(in + line + AHEAD);
        for (size_t at = line; at < line + 64; at += sizeof(VEC)) {
            VEC held = LOAD(in + at);
            STREAM(first + at, held);
            for (int i = 1; i < outs; i++) STREAM(out[i] + at, held);
        }
    }
}

/* Exchanges two buffers. */
TARGET static void SWAP(char *one, char *two, size_t bytes, bool stream)
{
    for (size_t at = 0; at < bytes; at += sizeof(VEC)) {
        VEC a = LOAD(one + at), b = LOAD(two + at);
        if (stream) {
            STREAM(one + at, b);
            STREAM(two + at, a);
        } else {
            STORE(one + at, b);
            STORE(two + at, a);
        }
    }
}

#undef SUM_LOOP
#undef SUM
#undef PREFIX
#undef SWAP
#undef STREAM_COPY
#undef TARGET
#undef VEC
#undef LOAD
#undef ADD
#undef STORE
#undef STREAM
