/* SPDX-License-Identifier: Apache-2.0
 *
 * fold: every output gets the canonical tree over all inputs (reduce.h), or its slice of it. If inputs are few, all are
 * in registers; otherwise groups of eight are.
 *
 * The tree's nodes are [k * 2^j, (k + 1) * 2^j), cut off at the number of inputs. A group is folded in registers, and
 * groups by a binary counter: entry j of the stack is a node of 2^j groups.
 *
 * Invariant: a thread reads what all inputs have at an element before it writes that element of any output, and no
 * other thread touches it. So an output may be an input.
 */

/* Elements of a pack, which is read at once: 16 bytes, but no more than eight elements, since compiling takes long
 * otherwise; and four if inputs are many, since every level of the stack has as many accumulators. */
#define FOLD_LANES (sizeof(ELEMENT) == 8 ? 2 : sizeof(ELEMENT) == 4 || !IS_FEW ? 4 : 8)
#define FOLD_GROUP 8
#define FOLD_LEVELS (IS_FEW ? 1 : 8) /* TTI_GPU_RANKS / FOLD_GROUP is 2^7 */

union MINE(fold_pack) {
    struct wide wide;
    ELEMENT at[FOLD_LANES];
};

/* The work of a part of the grid: elements [first, first + count) of the inputs, for outputs [out, out + outs). */
struct MINE(fold_part) {
    uint64_t first, count;
    uint32_t out, outs;
    uint64_t head;  /* elements before the first whole pack */
    uint64_t packs; /* 0: the pointers do not all allow packs */
};

INLINE const char *MINE(fold_input)(const struct ARGUMENTS *of, uint32_t k)
{
    return (const char *)(uintptr_t)copied_list_at(of, k);
}

INLINE char *MINE(fold_output)(const struct ARGUMENTS *of, uint32_t k)
{
    return (char *)(uintptr_t)copied_list_at(of, of->inputs + k);
}

/* Returns an input's factor; only scaled sums use it. */
INLINE double MINE(fold_factor)(const struct ARGUMENTS *of, uint32_t k)
{
    uint32_t slices = (of->flags & TTI_GPU_SLICES) != 0 ? of->outputs + 1 : 0;
    return f64_of_bits(copied_list_at(of, of->inputs + of->outputs + slices + k));
}

INLINE struct MINE(fold_part) MINE(fold_part_of)(const struct ARGUMENTS *of, uint32_t part)
{
    struct MINE(fold_part) made = {0, of->count, 0, of->outputs, 0, 0};
    bool alike = (of->flags & TTI_GPU_ALIKE) != 0;
    uint32_t firsts = of->inputs + of->outputs;
    if ((of->flags & TTI_GPU_SLICES) != 0) {
        made.first = copied_list_at(of, firsts + part);
        made.count = copied_list_at(of, firsts + part + 1) - made.first;
        made.out = part;
        made.outs = 1;
    }
    uintptr_t from = (uintptr_t)MINE(fold_input)(of, 0) + made.first * sizeof(ELEMENT);
    if ((of->flags & TTI_GPU_SLICES) != 0) alike = alike && ((uintptr_t)MINE(fold_output)(of, part) ^ from) % 16 == 0;
    uint64_t head = (16 - from % 16) % 16 / sizeof(ELEMENT);
    if (!alike || head >= made.count) return made;
    made.head = head;
    made.packs = (made.count - head) / FOLD_LANES;
    return made;
}

/* Reads one pack, or one element, of an input. */
INLINE union MINE(fold_pack) MINE(fold_get)(const struct ARGUMENTS *of, const char *from, int lanes)
{
    union MINE(fold_pack) made;
    if (lanes > 1 || (of->flags & TTI_GPU_ALIGNED) != 0)
        made.wide = get_wide(from, lanes * (int)sizeof(ELEMENT));
    else
        memcpy(&made.at[0], from, sizeof(ELEMENT));
    return made;
}

INLINE void MINE(fold_put)(const struct ARGUMENTS *of, char *to, union MINE(fold_pack) value, int lanes)
{
    if (lanes > 1 || (of->flags & TTI_GPU_ALIGNED) != 0)
        put_wide(to, value.wide, lanes * (int)sizeof(ELEMENT));
    else
        memcpy(to, &value.at[0], sizeof(ELEMENT));
}

/* Returns the tree over n <= 8 inputs, from `first` on, at one element of their packs. */
INLINE ACCUMULATOR MINE(fold_group)(const struct ARGUMENTS *of, const union MINE(fold_pack) * in, int lane,
                                    uint32_t first, int n)
{
    ACCUMULATOR x[FOLD_GROUP] = {0};
    UNROLL for (int k = 0; k < FOLD_GROUP; k++)
    {
        if (k < n) x[k] = LOAD(of, in[k].at[lane], IS_SCALED(of) ? MINE(fold_factor)(of, first + (uint32_t)k) : 1.0);
    }
    UNROLL for (int width = 1; width < FOLD_GROUP; width *= 2)
    {
        UNROLL for (int k = 0; k + width < FOLD_GROUP; k += 2 * width)
        {
            if (k + width < n) x[k] = FOLD(of, x[k], x[k + width]);
        }
    }
    return x[0];
}

/* Pushes group number `pushed` onto the stack. */
INLINE void MINE(fold_push)(const struct ARGUMENTS *of, ACCUMULATOR (*stack)[FOLD_LANES], uint32_t pushed, ACCUMULATOR *total, int lanes)
{
    bool placed = false;
    UNROLL for (int level = 0; level < FOLD_LEVELS; level++)
    {
        bool carries = (pushed >> level & 1) != 0;
        UNROLL for (int lane = 0; lane < lanes; lane++)
        {
            if (!placed && carries) total[lane] = FOLD(of, stack[level][lane], total[lane]);
            if (!placed && !carries) stack[level][lane] = total[lane];
        }
        placed = placed || !carries;
    }
}

/* Returns the whole tree, over as many groups as were pushed. */
INLINE ACCUMULATOR MINE(fold_top)(const struct ARGUMENTS *of, ACCUMULATOR (*stack)[FOLD_LANES], uint32_t pushed, int lane)
{
    ACCUMULATOR total = 0;
    bool begun = false;
    UNROLL for (int level = 0; level < FOLD_LEVELS; level++)
    {
        if ((pushed >> level & 1) != 0) {
            total = begun ? FOLD(of, stack[level][lane], total) : stack[level][lane];
            begun = true;
        }
    }
    return total;
}

/* Writes `lanes` elements of a part, from number i on, to all its outputs. */
INLINE void MINE(fold_write)(const struct ARGUMENTS *of, const struct MINE(fold_part) * part, uint64_t i,
                             union MINE(fold_pack) value, int lanes)
{
    for (uint32_t k = 0; k < part->outs; k++)
        MINE(fold_put)(of, MINE(fold_output)(of, part->out + k) + i * sizeof(ELEMENT), value, lanes);
}

/* Reads, folds and writes such elements. */
INLINE void MINE(fold_some)(const struct ARGUMENTS *of, const struct MINE(fold_part) * part, uint64_t i, int lanes, int n)
{
    ACCUMULATOR stack[FOLD_LEVELS][FOLD_LANES] = {{0}};
    uint32_t groups = IS_FEW ? 1 : ((uint32_t)n + FOLD_GROUP - 1) / FOLD_GROUP;
    uint64_t from = (part->first + i) * sizeof(ELEMENT);
    for (uint32_t group = 0; group < groups; group++) {
        union MINE(fold_pack) in[FOLD_GROUP] = {0};
        ACCUMULATOR total[FOLD_LANES] = {0};
        uint32_t first = group * FOLD_GROUP;
        int left = n - (int)first;
        UNROLL for (int k = 0; k < FOLD_GROUP; k++)
        {
            if (k < left) in[k] = MINE(fold_get)(of, MINE(fold_input)(of, first + (uint32_t)k) + from, lanes);
        }
        UNROLL for (int lane = 0; lane < lanes; lane++) total[lane] = MINE(fold_group)(of, in, lane, first, left);
        MINE(fold_push)(of, stack, group, total, lanes);
    }
    union MINE(fold_pack) out;
    UNROLL for (int lane = 0; lane < lanes; lane++) out.at[lane] = STORE(of, MINE(fold_top)(of, stack, groups, lane), n);
    MINE(fold_write)(of, part, i, out, lanes);
}

INLINE void MINE(fold_packs)(const struct ARGUMENTS *of, const struct MINE(fold_part) * part)
{
    for (uint64_t i = thread_index(); i < part->packs; i += thread_count())
        MINE(fold_some)(of, part, part->head + i * FOLD_LANES, FOLD_LANES, (int)of->inputs);
}

/* Does the same for n inputs, which is 2, 4 or 8 and known when this is compiled: eight packs are read before any is
 * folded, from as many places as that makes. */
INLINE void MINE(fold_eights)(const struct ARGUMENTS *of, const struct MINE(fold_part) * part, int n)
{
    uint64_t step = thread_count();
    for (uint64_t i = thread_index(); i < part->packs; i += step * (uint64_t)(FOLD_GROUP / n)) {
        union MINE(fold_pack) in[FOLD_GROUP] = {0}, out;
        UNROLL for (int k = 0; k < FOLD_GROUP; k++)
        {
            uint64_t pack = i + step * (uint64_t)(k / n), from = part->first + part->head + pack * FOLD_LANES;
            if (pack < part->packs)
                in[k] = MINE(fold_get)(of, MINE(fold_input)(of, (uint32_t)(k % n)) + from * sizeof(ELEMENT), FOLD_LANES);
        }
        UNROLL for (int place = 0; place < FOLD_GROUP / n; place++)
        {
            uint64_t pack = i + step * (uint64_t)place, to = part->head + pack * FOLD_LANES;
            UNROLL for (int lane = 0; lane < FOLD_LANES; lane++)
            {
                out.at[lane] = STORE(of, MINE(fold_group)(of, in + place * n, lane, 0, n), n);
            }
            if (pack < part->packs) MINE(fold_write)(of, part, to, out, FOLD_LANES);
        }
    }
}

INLINE void MINE(fold_body)(const struct ARGUMENTS *of, uint32_t index)
{
    struct MINE(fold_part) part = MINE(fold_part_of)(of, index);
    uint64_t packed = part.packs * FOLD_LANES;
    uint32_t n = of->inputs;
    if (IS_FEW && n == 2)
        MINE(fold_eights)(of, &part, 2);
    else if (IS_FEW && n == 4)
        MINE(fold_eights)(of, &part, 4);
    else if (IS_FEW && n == 8)
        MINE(fold_eights)(of, &part, 8);
    else
        MINE(fold_packs)(of, &part);
    for (uint64_t i = thread_index(); i < part.count - packed; i += thread_count())
        MINE(fold_some)(of, &part, i < part.head ? i : i + packed, 1, (int)n);
}

KERNEL(MINE(fold), ARGUMENTS, MINE(fold_body))
