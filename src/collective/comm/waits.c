/* SPDX-License-Identifier: Apache-2.0 */
#include "collective/comm/waits.h"

#include "base/hash.h"
#include <stdio.h>
#include <string.h>

enum { SHOWN = 4 }; /* waits of a long chain that are written */

/* ---- The own record -------------------------------------------------------------------------------------------- */

bool tti_wait_renew(struct tti_own_wait *own, const struct tti_wait_record *now, uint64_t stand)
{
    struct tti_wait_record *record = &own->record;
    bool same = record->doing == TTI_WAITS && record->awaited == now->awaited && record->sure == now->sure &&
                own->stand == stand;
    uint64_t number = record->number + !same, looked = same ? record->looked : 0;
    *record = *now;
    record->number = number;
    record->looked = looked;
    own->stand = stand;
    if (!same) own->known = 0;
    return same;
}

/* If the digest is what it was at the poll before, it was so before the polls in between: only then it counts. */
void tti_wait_poll(struct tti_own_wait *own, uint64_t known)
{
    own->record.looked = known == own->known ? known : 0;
    own->known = known;
}

/* ---- The rule -------------------------------------------------------------------------------------------------- */

static struct tti_wait_record get(const struct tti_waits *waits, int rank)
{
    struct tti_wait_record record;
    waits->get(waits->context, rank, &record);
    return record;
}

/* Returns 0 if the rank runs. A rank that is gone stays so. */
static uint64_t digest_of(const struct tti_waits *waits, int rank)
{
    struct tti_wait_record record = get(waits, rank);
    uint64_t number = record.doing == TTI_GONE ? UINT64_MAX : record.number;
    return record.doing == TTI_RUNS ? 0 : tti_stir(tti_mix((uint64_t)rank, number)) | 1;
}

uint64_t tti_waits_digest(const struct tti_waits *waits, int rank, int awaited)
{
    uint64_t all = 0;
    if (awaited != TTI_ANYONE) return digest_of(waits, awaited);
    for (int other = 0; other < waits->size; other++) {
        uint64_t one = other == rank ? 0 : digest_of(waits, other);
        if (one == 0 && other != rank) return 0;
        all += one;
    }
    return all;
}

/* Returns true if the awaited rank has to leave a wait before this one can end. */
static bool is_certain(const struct tti_waits *waits, const struct tti_wait_record *record)
{
    return record->doing == TTI_WAITS && record->sure != 0 && record->looked != 0 &&
           record->looked == tti_waits_digest(waits, record->rank, record->awaited);
}

/* Returns true if this holds for all ranks that have not left: a wait for anyone leads to all of them. */
static bool all_are_certain(const struct tti_waits *waits)
{
    for (int rank = 0; rank < waits->size; rank++) {
        struct tti_wait_record record = get(waits, rank);
        if (record.doing != TTI_GONE && !is_certain(waits, &record)) return false;
    }
    return true;
}

bool tti_waits_forever(const struct tti_waits *waits, int rank)
{
    int next = rank;
    for (int hops = 0; hops < waits->size; hops++) {
        struct tti_wait_record record = get(waits, next);
        if (!is_certain(waits, &record)) return false;
        if (record.awaited == TTI_ANYONE) return all_are_certain(waits);
        next = record.awaited;
        if (next == rank) return true;
    }
    return false; /* the ranks that wait for each other will find it themselves */
}

/* ---- For people ------------------------------------------------------------------------------------------------ */

int tti_waits_blame(const struct tti_waits *waits, int rank, int awaited)
{
    int last = awaited;
    for (int hops = 0; hops < waits->size; hops++) {
        struct tti_wait_record record = get(waits, last);
        if (record.doing != TTI_WAITS || record.awaited == TTI_ANYONE) return last;
        if (record.awaited == rank) break;
        last = record.awaited;
    }
    return awaited;
}

static size_t add_wait(const struct tti_wait_record *record, char *text, size_t bytes)
{
    char whom[32] = "any rank";
    if (record->awaited != TTI_ANYONE) snprintf(whom, sizeof whom, "rank %d", record->awaited);
    int length = snprintf(text, bytes, "; rank %d waits in %s for %s", record->rank, record->what, whom);
    return length < 0 || (size_t)length >= bytes ? bytes : (size_t)length;
}

void tti_waits_describe(const struct tti_waits *waits, int rank, int awaited, char *text, size_t bytes)
{
    size_t used = 0;
    int next = awaited, hops = 0;
    text[0] = '\0';
    for (; hops < waits->size && next != TTI_ANYONE && next != rank; hops++) {
        struct tti_wait_record record = get(waits, next);
        if (record.doing != TTI_WAITS) break;
        if (hops < SHOWN && used < bytes) used += add_wait(&record, text + used, bytes - used);
        next = record.awaited;
    }
    if (hops > SHOWN && hops < waits->size && used < bytes)
        snprintf(text + used, bytes - used, "; and so on in %d more ranks", hops - SHOWN);
}

static bool is_on_chain(const struct tti_waits *waits, int first, int rank)
{
    int next = first;
    for (int hops = 0; hops < waits->size && next != TTI_ANYONE; hops++) {
        if (next == rank) return true;
        next = get(waits, next).awaited;
    }
    return false;
}

void tti_waits_describe_others(const struct tti_waits *waits, int rank, int awaited, char *text, size_t bytes)
{
    struct tti_wait_record last = get(waits, tti_waits_blame(waits, rank, awaited));
    size_t used = 0;
    int shown = 0;
    text[0] = '\0';
    if (last.doing != TTI_WAITS || last.awaited != TTI_ANYONE) return;
    for (int other = 0; other < waits->size && shown < SHOWN && used < bytes; other++) {
        struct tti_wait_record record = get(waits, other);
        if (other == rank || record.doing != TTI_WAITS || is_on_chain(waits, awaited, other)) continue;
        used += add_wait(&record, text + used, bytes - used);
        shown++;
    }
}
