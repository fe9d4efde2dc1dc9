/* SPDX-License-Identifier: Apache-2.0 */
#include "train/micro.h"

#include "base/alloc.h"

struct cutter {
    struct tti_micros *micros;
    int made;      /* micro-batches that were begun */
    int work_made; /* entries of work that were made */
};

static void add_work(struct cutter *cutter, struct tti_span grains, int to, int from)
{
    cutter->micros->work[cutter->work_made++] = (struct tti_micro_work){grains, to, from};
}

static void begin_micro(struct cutter *cutter, struct tti_span grains)
{
    struct tti_micros *micros = cutter->micros;
    micros->grains[cutter->made] = grains;
    micros->first[cutter->made++] = cutter->work_made;
    if (grains.hi - grains.lo > micros->most_grains) micros->most_grains = grains.hi - grains.lo;
}

/* Returns how many of `count` micro-batches the left half gets: in proportion to its grains, but no half has none, or
 * more than it has grains. */
static size_t left_share(size_t left, size_t right, size_t count)
{
    size_t share = (2 * count * left + left + right) / (2 * (left + right));
    size_t least = count > right ? count - right : 1, most = left < count ? left : count - 1;
    return share < least ? least : share > most ? most : share;
}

/* Cuts a subtree into `count` micro-batches, at most one for each grain, into buffer `to`. */
static void cut_tree(struct cutter *cutter, struct tti_span tree, size_t count, int to, int depth)
{
    size_t leaves = tree.hi - tree.lo;
    if (count == 1) {
        begin_micro(cutter, tree);
        add_work(cutter, tree, to, -1);
        return;
    }
    size_t half = tti_tree_half(leaves), left = left_share(half, leaves - half, count);
    int right = cutter->micros->partials + depth;
    if (depth + 1 > cutter->micros->depths) cutter->micros->depths = depth + 1;
    cut_tree(cutter, (struct tti_span){tree.lo, tree.lo + half}, left, to, depth + 1);
    cut_tree(cutter, (struct tti_span){tree.lo + half, tree.hi}, count - left, right, depth + 1);
    add_work(cutter, (struct tti_span){0, 0}, to, right);
}

/* Gives micro-batches one by one to the subtree with the most grains for each of its own. */
static void share_out(const int *bounds, int subtrees, int count, size_t *shares)
{
    for (int k = 0; k < subtrees; k++) shares[k] = 1;
    for (int given = subtrees; given < count; given++) {
        int neediest = -1;
        double most = 1;
        for (int k = 0; k < subtrees; k++) {
            double each = (double)(bounds[k + 1] - bounds[k]) / (double)shares[k];
            if (each > most) most = each, neediest = k;
        }
        if (neediest < 0) return; /* every grain has its own already */
        shares[neediest]++;
    }
}

static struct tti_span subtree_at(struct tti_span mine, const int *bounds, int from, int to)
{
    return (struct tti_span){mine.lo + (size_t)bounds[from], mine.lo + (size_t)bounds[to]};
}

static void cut_run(struct cutter *cutter, struct tti_span mine, const int *bounds)
{
    struct tti_micros *micros = cutter->micros;
    int subtrees = micros->partials;
    size_t shares[TUTTI_SUBTREES_MAX];
    share_out(bounds, subtrees, micros->count, shares);
    for (int k = 0; micros->count >= subtrees && k < subtrees; k++)
        cut_tree(cutter, subtree_at(mine, bounds, k, k + 1), shares[k], k, 0);
    for (int m = 0; micros->count < subtrees && m < micros->count; m++) { /* each has several whole subtrees */
        struct tti_span some = tti_tree_share((size_t)subtrees, m, micros->count);
        begin_micro(cutter, subtree_at(mine, bounds, (int)some.lo, (int)some.hi));
        for (int k = (int)some.lo; k < (int)some.hi; k++) add_work(cutter, subtree_at(mine, bounds, k, k + 1), k, -1);
    }
    while (cutter->made < micros->count) begin_micro(cutter, (struct tti_span){mine.hi, mine.hi});
    micros->first[micros->count] = cutter->work_made;
}

bool tti_micros_make(size_t total, struct tti_span mine, int count, struct tti_micros *micros)
{
    int bounds[TUTTI_SUBTREES_MAX + 1] = {0};
    *micros = (struct tti_micros){.count = count};
    micros->partials = tutti_grain_subtrees((int)total, (int)mine.lo, (int)(mine.hi - mine.lo), bounds);
    micros->grains = tti_calloc((size_t)count, sizeof *micros->grains);
    micros->first = tti_calloc((size_t)count + 1, sizeof *micros->first);
    micros->work = tti_calloc(2 * (mine.hi - mine.lo) + 1, sizeof *micros->work);
    if (micros->grains == NULL || micros->first == NULL || micros->work == NULL) return false;
    cut_run(&(struct cutter){.micros = micros}, mine, bounds);
    return true;
}

void tti_micros_free(struct tti_micros *micros)
{
    tti_free(micros->grains);
    tti_free(micros->first);
    tti_free(micros->work);
    *micros = (struct tti_micros){0};
}
