/* SPDX-License-Identifier: Apache-2.0 */
#include "collective/comm/call.h"

#include <stdio.h>

uint64_t tti_call_digest(const struct tti_call *call)
{
    uint64_t what = (uint64_t)call->kind | (uint64_t)call->type << 8 | (uint64_t)call->in_place << 16 |
                    (uint64_t)call->on_stream << 24 | (uint64_t)(uint32_t)call->root << 32;
    uint64_t hash = tti_mix(call->reduction_signature, what);
    hash = tti_mix(hash, call->count);
    return tti_mix(hash, call->counts_signature);
}

uint32_t tti_counts_signature(const size_t *counts, int size)
{
    uint64_t hash = (uint64_t)size;
    for (int i = 0; i < size; i++) hash = tti_mix(hash, counts[i]);
    return (uint32_t)(hash >> 32);
}

/* Count i is in share i / share_of(count). */
static size_t share_of(size_t count)
{
    return (count + TTI_CALL_DIGESTS - 1) / TTI_CALL_DIGESTS;
}

/* `stride`: bytes from one count to the next. */
static void set_counts(struct tti_call *call, const void *counts, size_t stride, size_t count)
{
    uint64_t all = count;
    size_t share = share_of(count);
    call->count = 0;
    call->parts = (uint32_t)count;
    for (size_t k = 0; k < TTI_CALL_DIGESTS; k++) {
        uint64_t hash = 0;
        for (size_t i = k * share; i < count && i < (k + 1) * share; i++) {
            size_t part = *(const size_t *)(const void *)((const char *)counts + i * stride);
            hash = tti_mix(hash, part);
            call->count += part;
        }
        call->digests[k] = (uint16_t)(hash >> 48);
        all = tti_mix(all, hash);
    }
    call->counts_signature = (uint32_t)(all >> 32);
}

void tti_call_set_pieces(struct tti_call *call, const tutti_piece *pieces, size_t count)
{
    set_counts(call, count == 0 ? NULL : &pieces->count, sizeof *pieces, count);
}

void tti_call_set_blocks(struct tti_call *call, const size_t *counts, int size)
{
    set_counts(call, counts, sizeof *counts, (size_t)size);
}

static const char *reduction_text(uint8_t reduction)
{
    /* numbers of registered reductions mean nothing in another process */
    return reduction >= TUTTI_REDUCTION_USER ? "a registered reduction"
                                             : tutti_reduction_name((tutti_reduction)reduction);
}

void tti_site_describe(const struct tti_site *site, char *text, size_t bytes)
{
    char name[40] = "", place[64] = "";
    if (site->name[0] != '\0') snprintf(name, sizeof name, " \"%.*s\"", (int)sizeof site->name, site->name);
    if (site->line > 0)
        snprintf(place, sizeof place, " at %.*s:%d", (int)sizeof site->file, site->file, (int)site->line);
    snprintf(text, bytes, "%s%s", name, place);
}

/* Returns true for kinds in which each rank has counts of its own, so that the call has none. */
static bool has_no_count(uint8_t kind)
{
    return kind == TTI_GATHER_V || kind == TTI_SCATTER_V || kind == TTI_ALL_TO_ALL_V;
}

void tti_call_describe(const struct tti_call *call, char *text, size_t bytes)
{
    char elements[128] = "", pieces[32] = "", count[32] = "", root[32] = "", site[112];
    bool many = call->kind >= TTI_ALL_REDUCE_MANY && call->kind <= TTI_REDUCE_SCATTER_MANY;
    if (many) snprintf(pieces, sizeof pieces, "%u pieces, ", call->parts);
    if (call->root >= 0) snprintf(root, sizeof root, ", root %d", (int)call->root);
    bool reduces = call->reduction != TTI_NO_REDUCTION;
    if (!has_no_count(call->kind)) snprintf(count, sizeof count, "%llu ", (unsigned long long)call->count);
    if (call->type < TUTTI_TYPE_COUNT)
        snprintf(elements, sizeof elements, "(%s%s%s%s%s%s%s)", pieces, count, tutti_type_name((tutti_type)call->type),
                 reduces ? ", " : "", reduces ? reduction_text(call->reduction) : "", root,
                 call->in_place != 0 ? ", in place" : "");
    tti_site_describe(&call->site, site, sizeof site);
    snprintf(text, bytes, "%s%s%s%s", tti_kind_name((enum tti_kind)call->kind), elements,
             call->on_stream ? " on a stream" : "", site);
}

bool tti_call_depends(const struct tti_call *call, int rank, int peer)
{
    if (call->count == 0) return call->kind == TTI_BARRIER;
    switch ((enum tti_kind)call->kind) {
    case TTI_ALL_REDUCE:
    case TTI_ALL_GATHER:
    case TTI_REDUCE_SCATTER:
    case TTI_ALL_TO_ALL:
    case TTI_ALL_REDUCE_MANY:
    case TTI_ALL_GATHER_MANY:
    case TTI_REDUCE_SCATTER_MANY: return true;
    case TTI_REDUCE:
    case TTI_GATHER: return rank == call->root;
    case TTI_BROADCAST:
    case TTI_BROADCAST_MANY:
    case TTI_SCATTER: return peer == call->root;
    case TTI_SCAN:
    case TTI_EXSCAN: return peer < rank;
    default: return false;
    }
}

/* Writes which of many pieces, or blocks, differ first: "; the first count that differs is that of piece 3". */
static void describe_counts(const struct tti_call *one, const struct tti_call *other, char *text, size_t bytes)
{
    text[0] = '\0';
    if (one->kind != other->kind || one->parts != other->parts || one->parts == 0) return;
    size_t count = one->parts, share = share_of(count), k = 0;
    while (k < TTI_CALL_DIGESTS && one->digests[k] == other->digests[k]) k++;
    if (k == TTI_CALL_DIGESTS) return;
    const char *of = one->kind == TTI_ALL_GATHER_V || one->kind == TTI_REDUCE_SCATTER_V ? "rank" : "piece";
    size_t last = (k + 1) * share < count ? (k + 1) * share - 1 : count - 1;
    if (share == 1)
        snprintf(text, bytes, "; the first count that differs is that of %s %zu", of, k);
    else
        snprintf(text, bytes, "; the first count that differs is among those of %ss %zu to %zu", of, k * share, last);
}

void tti_call_describe_two(uint64_t sequence, int rank, const struct tti_call *call, int peer,
                           const struct tti_call *other, char *text, size_t bytes)
{
    char ours[160], theirs[160], which[96];
    tti_call_describe(call, ours, sizeof ours);
    tti_call_describe(other, theirs, sizeof theirs);
    describe_counts(call, other, which, sizeof which);
    snprintf(
        text, bytes,
        "ranks differ at operation #%llu: rank %d called %s, but rank %d called %s%s; all ranks must make the same "
        "calls in the same order",
        (unsigned long long)sequence, rank, ours, peer, theirs, which);
}
