/* SPDX-License-Identifier: Apache-2.0
 *
 * scan: the output of rank r gets the canonical tree over the inputs of ranks 0 .. r, or of those below r
 * (reduce_scan.c). Inputs are pushed one by one onto a binary counter, whose entry j is a node of 2^j ranks; after each
 * push, the counter is folded without changing it.
 *
 * Invariant: a thread reads an element of rank r before it writes that element of rank r, and no other thread touches
 * either. So an output may be its own rank's input.
 */

#define SCAN_LANES (sizeof(ELEMENT) == 8 ? 2 : 4) /* elements of a pack, which is read at once */
#define SCAN_GROUP 8                              /* packs that are read before any prefix is written */
#define SCAN_LEVELS (IS_FEW ? 4 : 11)             /* TTI_GPU_RANKS is 2^10 */

union MINE(scan_pack) {
    struct wide wide;
    ELEMENT at[SCAN_LANES];
};

/* Reads one pack, or one element. */
INLINE union MINE(scan_pack) MINE(scan_get)(const struct ARGUMENTS *of, uint32_t rank, uint64_t i, int lanes)
{
    const char *from = (const char *)(uintptr_t)copied_list_at(of, rank) + i * sizeof(ELEMENT);
    union MINE(scan_pack) made;
    if (lanes > 1 || (of->flags & TTI_GPU_ALIGNED) != 0)
        made.wide = get_wide(from, lanes * (int)sizeof(ELEMENT));
    else
        memcpy(&made.at[0], from, sizeof(ELEMENT));
    return made;
}

INLINE void MINE(scan_put)(const struct ARGUMENTS *of, uint32_t rank, uint64_t i, union MINE(scan_pack) value, int lanes)
{
    uintptr_t base = (uintptr_t)copied_list_at(of, of->inputs + rank);
    char *to = (char *)(base + i * sizeof(ELEMENT));
    if (base == 0) return; /* this output is not written */
    if (lanes > 1 || (of->flags & TTI_GPU_ALIGNED) != 0)
        put_wide(to, value.wide, lanes * (int)sizeof(ELEMENT));
    else
        memcpy(to, &value.at[0], sizeof(ELEMENT));
}

INLINE void MINE(scan_push)(const struct ARGUMENTS *of, ACCUMULATOR (*stack)[SCAN_LANES], uint32_t pushed, ACCUMULATOR total, int lane)
{
    bool placed = false;
    UNROLL for (int level = 0; level < SCAN_LEVELS; level++)
    {
        bool carries = (pushed >> level & 1) != 0;
        if (!placed && carries) total = FOLD(of, stack[level][lane], total);
        if (!placed && !carries) stack[level][lane] = total;
        placed = placed || !carries;
    }
}

/* Returns the prefix of all that were pushed. */
INLINE ACCUMULATOR MINE(scan_prefix)(const struct ARGUMENTS *of, ACCUMULATOR (*stack)[SCAN_LANES], uint32_t pushed, int lane)
{
    ACCUMULATOR total = 0;
    bool begun = false;
    UNROLL for (int level = 0; level < SCAN_LEVELS; level++)
    {
        if ((pushed >> level & 1) != 0) {
            total = begun ? FOLD(of, stack[level][lane], total) : stack[level][lane];
            begun = true;
        }
    }
    return total;
}

INLINE void MINE(scan_write)(const struct ARGUMENTS *of, ACCUMULATOR (*stack)[SCAN_LANES], uint32_t pushed, uint32_t rank,
                             uint64_t i, int lanes)
{
    union MINE(scan_pack) out;
    UNROLL for (int lane = 0; lane < lanes; lane++)
    {
        out.at[lane] = STORE(of, MINE(scan_prefix)(of, stack, pushed, lane), (int)pushed);
    }
    MINE(scan_put)(of, rank, i, out, lanes);
}

/* Scans `lanes` elements of all ranks, from number i on. */
INLINE void MINE(scan_some)(const struct ARGUMENTS *of, uint64_t i, int lanes)
{
    ACCUMULATOR stack[SCAN_LEVELS][SCAN_LANES] = {{0}};
    bool exclusive = (of->flags & TTI_GPU_EXCLUSIVE) != 0;
    uint32_t factors = 2 * of->inputs;
    for (uint32_t first = 0; first < (IS_FEW ? 1 : of->inputs); first += SCAN_GROUP) {
        union MINE(scan_pack) in[SCAN_GROUP] = {0};
        UNROLL for (uint32_t k = 0; k < SCAN_GROUP; k++)
        {
            if (first + k < of->inputs) in[k] = MINE(scan_get)(of, first + k, i, lanes);
        }
        UNROLL for (uint32_t k = 0; k < SCAN_GROUP; k++)
        {
            uint32_t rank = first + k;
            if (rank < of->inputs) {
                double factor = IS_SCALED(of) ? f64_of_bits(copied_list_at(of, factors + rank)) : 1.0;
                if (exclusive && rank > 0) MINE(scan_write)(of, stack, rank, rank, i, lanes);
                UNROLL for (int lane = 0; lane < lanes; lane++)
                {
                    MINE(scan_push)(of, stack, rank, LOAD(of, in[k].at[lane], factor), lane);
                }
                if (!exclusive) MINE(scan_write)(of, stack, rank + 1, rank, i, lanes);
            }
        }
    }
}

INLINE void MINE(scan_body)(const struct ARGUMENTS *of, uint32_t part)
{
    uint64_t head = (16 - copied_list_at(of, 0) % 16) % 16 / sizeof(ELEMENT), packed = 0;
    (void)part;
    if ((of->flags & TTI_GPU_ALIKE) != 0 && head < of->count)
        packed = (of->count - head) / SCAN_LANES * SCAN_LANES;
    else
        head = 0;
    for (uint64_t i = thread_index(); i < packed / SCAN_LANES; i += thread_count())
        MINE(scan_some)(of, head + i * SCAN_LANES, SCAN_LANES);
    for (uint64_t i = thread_index(); i < of->count - packed; i += thread_count())
        MINE(scan_some)(of, i < head ? i : i + packed, 1);
}

KERNEL(MINE(scan), ARGUMENTS, MINE(scan_body))
