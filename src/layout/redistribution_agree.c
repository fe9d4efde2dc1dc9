/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks compare what they are about to do, with one small all_reduce if there is no error. Everything that can fail on
 * one rank alone has been tried before, so that no rank waits for one that has given up.
 */
#define TUTTI_NO_CALL_SITES
#include "base/hash.h"
#include "base/status.h"
#include "layout/layout_inside.h"
#include "layout/redistribution.h"
#include <string.h>

enum { TEXT = 208 }; /* short enough that the texts of two ranks fit into an error */

struct said {
    uint64_t digest;
    char text[TEXT];
};

static struct said said_of(const struct tutti_redistribution *r)
{
    struct said said = {.digest = tti_layout_digest(tti_layout_digest((uint64_t)r->type, &r->from), &r->to)};
    char from[TEXT / 2 - 8], to[TEXT / 2 - 8];
    const char *type = tutti_type_name(r->type);
    tutti_layout_describe(&r->from, from, sizeof from);
    tutti_layout_describe(&r->to, to, sizeof to);
    (void)snprintf(said.text, sizeof said.text, "%s to %s as %s", from, to, type == NULL ? "?" : type);
    return said;
}

static tutti_comm *inside(const struct tutti_redistribution *r)
{
    return tti_inside(r->all, "redistribution", "layouts");
}

/* Tells all ranks the same sentence, about the lowest rank that differs from rank 0, and about rank 0. */
static tutti_status tell_difference(const struct tutti_redistribution *r, const struct said *mine, tutti_error *error)
{
    struct said first = *mine, other = *mine;
    int64_t size = tutti_size(r->all), odd = size;
    TTI_TRY(tutti_broadcast(inside(r), &first, &first, sizeof first, TUTTI_U8, 0));
    if (mine->digest != first.digest) odd = tutti_rank(r->all);
    TTI_TRY(tutti_all_reduce(inside(r), &odd, &odd, 1, TUTTI_I64, TUTTI_MIN));
    TTI_TRY(tutti_broadcast(inside(r), &other, &other, sizeof other, TUTTI_U8, (int)odd));
    error->peer = (int)odd;
    return tti_error_set(error, TUTTI_ERR_MISMATCH, 0,
                         "ranks redistribute differently: rank %d from %s, rank 0 from %s", (int)odd, other.text,
                         first.text);
}

static tutti_status agree(const struct tutti_redistribution *r, tutti_status status, tutti_error *error)
{
    struct said mine = said_of(r);
    uint64_t size = (uint64_t)tutti_size(r->all), rank = (uint64_t)tutti_rank(r->all);
    uint64_t words[3] = {mine.digest, ~mine.digest, status == TUTTI_OK ? size : rank};
    TTI_TRY(tutti_all_reduce(inside(r), words, words, 3, TUTTI_U64, TUTTI_MIN));
    if (words[2] < size) {
        error->rank = (int)rank;
        TTI_TRY(tutti_broadcast(inside(r), error, error, sizeof *error, TUTTI_U8, (int)words[2]));
        return error->status;
    }
    return words[0] == ~words[1] ? TUTTI_OK : tell_difference(r, &mine, error);
}

tutti_status tti_redistribution_agree(const struct tutti_redistribution *redistribution, tutti_status status,
                                      tutti_error *error)
{
    if (status == TUTTI_OK) error->status = TUTTI_OK;
    tutti_status met = agree(redistribution, status, error);
    if (met != TUTTI_OK && error->status != met) *error = *tutti_comm_error(redistribution->all);
    return met;
}
