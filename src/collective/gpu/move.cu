/* SPDX-License-Identifier: Apache-2.0
 *
 * move: a list of copies. A part of the grid is one source, which is read once, with all its targets; or two places
 * whose contents are exchanged.
 *
 * Invariant: one thread reads a piece, and for a swap the piece at its target, before it writes that piece anywhere.
 */

#define MOVE_AHEAD 4 /* pieces that a thread reads before it writes */

struct NAME_2(move_part, SIZE) {
    char *from;
    uint64_t bytes;
    uint32_t first, targets;
    bool swap;
};

INLINE struct NAME_2(move_part, SIZE) NAME_2(move_part_of, SIZE)(const struct ARGUMENTS *of, uint32_t part)
{
    uint32_t head = part * TTI_GPU_HEAD;
    uint64_t last = list_at(of, head + 2);
    struct NAME_2(move_part, SIZE) made;
    made.from = (char *)(uintptr_t)list_at(of, head);
    made.bytes = list_at(of, head + 1);
    made.first = of->parts * TTI_GPU_HEAD + (uint32_t)last;
    made.targets = (uint32_t)(last >> 32) & 0x7fffffffu;
    made.swap = (last & TTI_GPU_SWAP) != 0;
    return made;
}

INLINE char *NAME_2(move_target, SIZE)(const struct ARGUMENTS *of, const struct NAME_2(move_part, SIZE) * part, uint32_t k)
{
    return (char *)(uintptr_t)list_at(of, part->first + k);
}

/* Returns the width of pieces, 16, 8, 4, 2 or 1 bytes: as large as all addresses allow, from the first multiple on. */
INLINE int NAME_2(move_width, SIZE)(const struct ARGUMENTS *of, const struct NAME_2(move_part, SIZE) * part)
{
    uintptr_t differ = 16;
    for (uint32_t k = 0; k < part->targets; k++)
        differ |= (uintptr_t)NAME_2(move_target, SIZE)(of, part, k) ^ (uintptr_t)part->from;
    return (int)(differ & (0 - differ));
}

/* Moves pieces [0, count) of `width` bytes, from `start` on. */
INLINE void NAME_2(move_pieces, SIZE)(const struct ARGUMENTS *of, const struct NAME_2(move_part, SIZE) * part,
                                      uint64_t start, uint64_t count, int width)
{
    uint64_t step = thread_count();
    for (uint64_t i = thread_index(); i < count; i += step * MOVE_AHEAD) {
        struct wide held[MOVE_AHEAD];
        UNROLL for (int k = 0; k < MOVE_AHEAD; k++)
        {
            uint64_t piece = i + step * (uint64_t)k;
            if (piece < count) held[k] = get_wide(part->from + start + piece * (uint64_t)width, width);
        }
        for (uint32_t target = 0; target < part->targets; target++) {
            char *to = NAME_2(move_target, SIZE)(of, part, target) + start;
            UNROLL for (int k = 0; k < MOVE_AHEAD; k++)
            {
                uint64_t piece = i + step * (uint64_t)k;
                if (piece < count) put_wide(to + piece * (uint64_t)width, held[k], width);
            }
        }
    }
}

INLINE void NAME_2(move_swap, SIZE)(const struct ARGUMENTS *of, const struct NAME_2(move_part, SIZE) * part,
                                    uint64_t start, uint64_t count, int width)
{
    char *from = part->from + start, *to = NAME_2(move_target, SIZE)(of, part, 0) + start;
    for (uint64_t i = thread_index(); i < count; i += thread_count()) {
        struct wide one = get_wide(from + i * (uint64_t)width, width), other = get_wide(to + i * (uint64_t)width, width);
        put_wide(to + i * (uint64_t)width, one, width);
        put_wide(from + i * (uint64_t)width, other, width);
    }
}

INLINE void NAME_2(move_range, SIZE)(const struct ARGUMENTS *of, const struct NAME_2(move_part, SIZE) * part,
                                     uint64_t start, uint64_t count, int width)
{
    if (part->swap)
        NAME_2(move_swap, SIZE)(of, part, start, count, width);
    else
        NAME_2(move_pieces, SIZE)(of, part, start, count, width);
}

INLINE void NAME_2(move_body, SIZE)(const struct ARGUMENTS *of, uint32_t index)
{
    struct NAME_2(move_part, SIZE) part = NAME_2(move_part_of, SIZE)(of, index);
    int width = NAME_2(move_width, SIZE)(of, &part);
    uint64_t wide = (uint64_t)width, head = (wide - (uintptr_t)part.from % wide) % wide;
    if (head > part.bytes) head = part.bytes;
    uint64_t count = (part.bytes - head) / wide, tail = head + count * wide;
    if (width == 16)
        NAME_2(move_range, SIZE)(of, &part, head, count, 16);
    else if (width == 8)
        NAME_2(move_range, SIZE)(of, &part, head, count, 8);
    else if (width == 4)
        NAME_2(move_range, SIZE)(of, &part, head, count, 4);
    else if (width == 2)
        NAME_2(move_range, SIZE)(of, &part, head, count, 2);
    else
        NAME_2(move_range, SIZE)(of, &part, head, count, 1);
    NAME_2(move_range, SIZE)(of, &part, 0, head, 1);
    NAME_2(move_range, SIZE)(of, &part, tail, part.bytes - tail, 1);
}

KERNEL(NAME_2(move, SIZE), ARGUMENTS, NAME_2(move_body, SIZE))
