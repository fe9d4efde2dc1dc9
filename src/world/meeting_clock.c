/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures the difference between this process's clock and rank 0's. Every exchange tells something: the member knows
 * when it gave and got, rank 0 when that came and when it was sent back. Processes with one clock, those of a host,
 * take the best of their comparisons, so that they do not differ.
 */
#include "base/clock.h"
#include "base/status.h"
#include "world/meeting.h"
#include <string.h>
#include <sys/stat.h>

/* In the exchanges of the meeting itself some may have waited for rank 0, which was busy elsewhere; in these rounds
 * none is. */
enum { ROUNDS = 8 };

/* Takes the middle of the way there and back, by both clocks, as if both ways were equally long; the fastest way is the
 * best. */
void tti_meeting_compare(struct tti_meeting *meeting, const struct tti_meeting_head *head)
{
    int64_t got_ns = tti_now_ns();
    int64_t way_ns = (got_ns - meeting->gave_ns) - (head->sent_ns - head->came_ns);
    if (way_ns < 0 || (meeting->compared && way_ns / 2 >= meeting->clock.error_ns)) return;
    meeting->compared = true;
    meeting->clock.error_ns = way_ns / 2;
    meeting->clock.offset_ns = (head->came_ns - meeting->gave_ns) / 2 + (head->sent_ns - got_ns) / 2;
}

/* Returns a number that is the same for processes with one clock: it is made of the system and the namespace of
 * time. */
static uint64_t clock_here(void)
{
    struct stat info;
    return tti_system_here() ^ (stat("/proc/self/ns/time", &info) == 0 ? (uint64_t)info.st_ino << 32 : 0);
}

/* Returns the best comparison that was told, the own one included: the exchange that tells it may compare better, but
 * only here. */
static struct tti_meeting_clock best_of(const struct tti_blobs *all, uint64_t which)
{
    struct tti_meeting_clock best = {.which = which, .error_ns = INT64_MAX}, told;
    for (int rank = 0; rank < all->count; rank++) {
        size_t bytes;
        const void *blob = tti_blob(all, rank, &bytes);
        if (bytes != sizeof told) continue;
        memcpy(&told, blob, sizeof told);
        if (told.which == which && told.error_ns < best.error_ns) best = told;
    }
    return best;
}

tutti_status tti_meeting_compare_clocks(struct tti_meeting *meeting, int64_t *offset_ns, tutti_error *error)
{
    struct tti_blobs all;
    for (int round = 0; round < ROUNDS; round++) {
        TTI_TRY(tti_meeting_exchange(meeting, NULL, 0, &all, error));
        tti_blobs_free(&all);
    }
    struct tti_meeting_clock clock = meeting->clock;
    clock.which = clock_here();
    TTI_TRY(tti_meeting_exchange(meeting, &clock, sizeof clock, &all, error));
    clock = best_of(&all, clock.which);
    tti_blobs_free(&all);
    /* the clocks are the same, or may be */
    bool same = clock.offset_ns <= clock.error_ns && -clock.offset_ns <= clock.error_ns;
    *offset_ns = same ? 0 : clock.offset_ns;
    return TUTTI_OK;
}
