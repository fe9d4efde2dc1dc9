/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=200 labels=asan,tsan waits
 *
 * Going on after a loss: ranks that are killed in collectives, in agreement and while the others shrink. The survivors know of the
 * same lost ranks, agree on the same, and go on in a comm of the next epoch; what was made before is refused.
 */
#define TUTTI_NO_CALL_SITES
#include "fault.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 5, ROUNDS = 100, TAG = 3, KILLS = 2, SHRINKS = 6, SIZES = 0, EPOCHS = 1 };

static bool over_tcp;
static uint64_t seed;
static int victims[KILLS], victim_count;
static int64_t delays_us[KILLS];

/* What ranks write down for the test: outcomes by round, and what they saw lost. */
struct notes {
    uint64_t outcomes[FAULT_RANKS][ROUNDS];
    uint64_t lost[FAULT_RANKS];
};

static struct notes *notes(void)
{
    _Static_assert(sizeof(struct notes) <= sizeof fault_shared->scratch, "they fit");
    return (struct notes *)(void *)fault_shared->scratch;
}

static bool tells(const tutti_comm *comm, tutti_status status, const char *words)
{
    const tutti_error *error = tutti_comm_error(comm);
    if (error == NULL) return CHECK_THAT(false, "there is no error");
    return CHECK_THAT(error->status == status && strstr(error->text, words) != NULL, "%s: %s",
                      tutti_status_name(error->status), error->text);
}

static const char *text_of(const tutti_comm *comm)
{
    const tutti_error *error = tutti_comm_error(comm);
    return error == NULL ? "" : error->text;
}

static uint64_t lost_of(tutti_comm *comm)
{
    int ranks[FAULT_RANKS], count = -1;
    uint64_t set = 0;
    CHECK(tutti_comm_lost(comm, ranks, FAULT_RANKS, &count) == TUTTI_OK && count >= 0 && count <= FAULT_RANKS);
    for (int i = 0; i < count; i++) set |= UINT64_C(1) << ranks[i];
    for (int i = 1; i < count; i++) CHECK(ranks[i] > ranks[i - 1]);
    return set;
}

static bool is_victim(int rank)
{
    for (int i = 0; i < victim_count; i++)
        if (victims[i] == rank) return true;
    return false;
}

/* All that a comm is for. */
static void use(tutti_comm *comm)
{
    int rank = tutti_rank(comm), size = tutti_size(comm);
    int64_t x = 1 << rank, sum = 0, y = -1;
    size_t received = 0;
    static _Thread_local float large[20000];
    float *shared = tutti_alloc(comm, sizeof large);
    tutti_comm *made = NULL;
    CHECK(tutti_all_reduce(comm, &x, &sum, 1, TUTTI_I64, TUTTI_SUM) == TUTTI_OK && sum == (1 << size) - 1);
    for (size_t i = 0; i < 20000; i++) large[i] = shared[i] = (float)rank;
    CHECK(tutti_all_reduce(comm, large, large, 20000, TUTTI_F32, TUTTI_SUM) == TUTTI_OK);
    CHECK(tutti_all_reduce(comm, shared, shared, 20000, TUTTI_F32, TUTTI_SUM) == TUTTI_OK);
    CHECK(memcmp(large, shared, sizeof large) == 0 && large[19999] == (float)(size * (size - 1) / 2));
    CHECK(tutti_sendrecv(comm, &x, 1, (rank + 1) % size, TAG, &y, 1, (rank + size - 1) % size, TAG, TUTTI_I64,
                         &received) == TUTTI_OK);
    CHECK(y == 1 << (rank + size - 1) % size);
    CHECK(tutti_comm_split(comm, rank % 2, 0, &made) == TUTTI_OK && tutti_epoch(made) == tutti_epoch(comm));
    CHECK(tutti_barrier(made) == TUTTI_OK && tutti_comm_free(made) == TUTTI_OK && tutti_free(comm, shared) == TUTTI_OK);
}

/* ---- Agreement -------------------------------------------------------------------------------------------------- */

static void ordinary(tutti_comm *comm, struct fault_rank *self)
{
    int rank = tutti_rank(comm), size = tutti_size(comm), x = rank, sum, count = -1;
    uint64_t all = 0;
    tutti_comm *made = NULL;
    (void)self;
    for (uint64_t round = 0; round < 50; round++) {
        CHECK(tutti_comm_agree(comm, ~(UINT64_C(1) << rank) & ~(round << 32), &all) == TUTTI_OK);
        CHECK_THAT(all == (~((UINT64_C(1) << size) - 1) & ~(round << 32)), "%llx", (unsigned long long)all);
        if (round % 10 == 0) CHECK(tutti_all_reduce(comm, &x, &sum, 1, TUTTI_I32, TUTTI_SUM) == TUTTI_OK);
    }
    CHECK(lost_of(comm) == 0 && tutti_comm_lost(comm, NULL, 0, &count) == TUTTI_OK && count == 0);
    /* what cannot be meant */
    CHECK(tutti_comm_agree(NULL, 0, &all) == TUTTI_ERR_ARGUMENT && tutti_comm_agree(comm, 0, NULL) < 0);
    CHECK(tutti_comm_lost(comm, NULL, 1, &count) == TUTTI_ERR_ARGUMENT && tutti_comm_lost(comm, NULL, 0, NULL) < 0);
    CHECK(tutti_comm_revoke(NULL) == TUTTI_ERR_ARGUMENT && tutti_comm_shrink(NULL, &made) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_comm_shrink(comm, NULL) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_comm_shrink(comm, &made) == TUTTI_ERR_ARGUMENT && made == NULL);
    tells(comm, TUTTI_ERR_ARGUMENT, "this comm is whole");
    CHECK(tutti_epoch(comm) == 0);
    CHECK(tutti_comm_duplicate(comm, &made) == TUTTI_OK);
    tutti_comm *none = made, *tolerant = NULL;
    CHECK(tutti_comm_shrink(made, &none) == TUTTI_ERR_ARGUMENT && none == NULL);
    tells(made, TUTTI_ERR_ARGUMENT, "shrink the world");
    CHECK(tutti_comm_agree(made, 1, &all) == TUTTI_OK && all == 1);
    CHECK(tutti_comm_tolerant(comm, &tolerant) == TUTTI_OK);
    CHECK(tutti_comm_agree(tolerant, 1, &all) == TUTTI_ERR_UNSUPPORTED);
    CHECK(tutti_group_begin(comm) == TUTTI_OK && tutti_comm_agree(comm, 1, &all) < 0);
    CHECK(tutti_group_end(comm) == TUTTI_OK && tutti_comm_agree(comm, 1, &all) == TUTTI_OK);
    CHECK(tutti_comm_free(made) == TUTTI_OK && tutti_comm_free(tolerant) == TUTTI_OK);
    use(comm);
}

/* A rank does not come: all get that, and it does too when it comes. */
static void late(tutti_comm *comm, struct fault_rank *self)
{
    uint64_t all = 7;
    tutti_comm *made = NULL;
    (void)self;
    CHECK(tutti_comm_agree(comm, 3, &all) == TUTTI_OK && all == 3);
    CHECK(tutti_comm_duplicate(comm, &made) == TUTTI_OK);
    if (tutti_rank(comm) == 1) fault_meet(comm);
    for (int i = 0; i < 2; i++) {
        CHECK(tutti_comm_agree(tutti_within(comm, 30), 1, &all) == TUTTI_ERR_TIMEOUT && all == 3);
        tells(comm, TUTTI_ERR_TIMEOUT, "rank 1 did not come");
    }
    if (tutti_rank(comm) != 1) fault_meet(comm);
    CHECK(tutti_comm_agree(made, 1, &all) == TUTTI_OK && all == 1); /* one that others had is as good as before */
    CHECK(tutti_barrier(comm) == TUTTI_OK && tutti_comm_free(made) == TUTTI_OK);
}

/* Ranks call different things while they agree. */
static void differing(tutti_comm *comm, struct fault_rank *self)
{
    uint64_t all;
    tutti_comm *made = NULL;
    (void)self;
    CHECK(tutti_comm_revoke(comm) == TUTTI_OK);
    tutti_status status = tutti_rank(comm) == 1 ? tutti_comm_shrink(comm, &made) : tutti_comm_agree(comm, 1, &all);
    CHECK_THAT(status == TUTTI_ERR_MISMATCH && made == NULL, "%s", tutti_status_name(status));
    CHECK(tutti_comm_agree(comm, 1, &all) == TUTTI_ERR_MISMATCH);
    fault_meet(comm);
}

/* Each takes its bit away, so that the outcome says who took part. */
static void agree_often(tutti_comm *comm, struct fault_rank *self)
{
    int rank = tutti_rank(comm);
    fault_meet(comm);
    self->mark = 1;
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t all = 0;
        tutti_status status = tutti_comm_agree(comm, ~(UINT64_C(1) << rank), &all);
        CHECK_THAT(status == TUTTI_OK, "rank %d, round %d: %s", rank, round, tutti_status_name(status));
        notes()->outcomes[rank][round] = ~all;
    }
    notes()->lost[rank] = lost_of(comm);
}

static void check_outcomes(int size)
{
    int first = 0;
    while (is_victim(first)) first++;
    for (int rank = first; rank < size; rank++) {
        uint64_t before = UINT64_MAX;
        for (int round = 0; round < ROUNDS && !is_victim(rank); round++) {
            uint64_t took_part = notes()->outcomes[rank][round];
            CHECK_THAT(took_part == notes()->outcomes[first][round], "round %d: rank %d %llx, rank %d %llx", round,
                       rank, (unsigned long long)took_part, first, (unsigned long long)notes()->outcomes[first][round]);
            CHECK((took_part & ~before) == 0 && (took_part & UINT64_C(1) << rank) != 0); /* nobody comes back */
            before = took_part;
        }
        if (!is_victim(rank)) CHECK(notes()->lost[rank] == (~before & ((UINT64_C(1) << size) - 1)));
    }
}

/* ---- What the test does meanwhile --------------------------------------------------------------------------------- */

static void kill_victims(struct fault_world *world)
{
    for (int rank = 0; rank < world->size; rank++) fault_await_mark(rank, 1);
    for (int i = 0; i < victim_count; i++) {
        if (delays_us[i] > 0) usleep((useconds_t)delays_us[i]);
        fault_expect_end(victims[i]);
        kill(world->pids[victims[i]], SIGKILL);
    }
}

static void choose_victims(int size, int64_t longest_us)
{
    victim_count = over_tcp && size < 5 ? 1 : 1 + (int)(fault_random(&seed) % KILLS); /* more than half are left */
    victims[0] = (int)(fault_random(&seed) % (uint64_t)size);
    victims[1] = (victims[0] + 1 + (int)(fault_random(&seed) % (uint64_t)(size - 1))) % size;
    for (int i = 0; i < KILLS; i++) delays_us[i] = (int64_t)(fault_random(&seed) % (uint64_t)longest_us);
    if (fault_random(&seed) % 3 == 0) delays_us[1] = 0; /* both at once */
}

static void run_killed(const char *title, fault_body *body, int size)
{
    struct fault_world world = {.size = size, .processes = true, .body = body, .meanwhile = kill_victims};
    if (over_tcp) world.settings[0] = "TUTTI_TRANSPORT=tcp";
    memset(fault_shared->scratch, 0, sizeof fault_shared->scratch);
    check_title("%s, %d processes%s, rank %d killed after %lld us%s %d", title, size, over_tcp ? ", tcp" : "",
                victims[0], (long long)delays_us[0], victim_count > 1 ? ", then rank" : "; of",
                victim_count > 1 ? victims[1] : size);
    fault_run(&world);
}

/* ---- Killed in a collective --------------------------------------------------------------------------------------- */

static void check_old(tutti_comm *comm, tutti_comm *made, tutti_op ended)
{
    int x = 0;
    uint64_t all;
    tutti_comm *none = NULL;
    CHECK(tutti_barrier(comm) == TUTTI_ERR_EPOCH && tutti_barrier(made) == TUTTI_ERR_EPOCH);
    CHECK(tutti_send(made, &x, 1, TUTTI_I32, 0, TAG) == TUTTI_ERR_EPOCH && tutti_wait(ended) == TUTTI_ERR_EPOCH);
    CHECK(tutti_comm_agree(comm, 1, &all) == TUTTI_ERR_EPOCH && tutti_comm_revoke(comm) == TUTTI_ERR_EPOCH);
    CHECK(tutti_comm_shrink(comm, &none) == TUTTI_ERR_EPOCH && none == NULL);
    tells(comm, TUTTI_ERR_EPOCH, "epoch 0");
}

/* Until a rank is lost, and then in the comm of those that are left; and once more. */
static void go_on(tutti_comm *world, struct fault_rank *self)
{
    tutti_comm *comm = world, *made = NULL, *next = NULL;
    int rank = tutti_rank(world);
    int64_t *kept = tutti_alloc(world, 64), x = 1, sum = 0;
    tutti_op ended;
    *kept = 1000 + rank;
    CHECK(tutti_comm_duplicate(world, &made) == TUTTI_OK);
    CHECK(tutti_barrier_start(made, &ended) == TUTTI_OK && tutti_barrier(made) == TUTTI_OK);
    fault_meet(world);
    self->mark = 1;
    for (int left = tutti_size(world) - victim_count; tutti_size(comm) > left; comm = next) {
        tutti_status status = TUTTI_OK;
        while (status == TUTTI_OK) status = tutti_all_reduce(comm, &x, &sum, 1, TUTTI_I64, TUTTI_SUM);
        CHECK_THAT(status == TUTTI_ERR_PEER_LOST, "%s", tutti_status_name(status));
        uint64_t all;
        if (over_tcp) CHECK(tutti_comm_agree(comm, 1, &all) == TUTTI_OK); /* until then each rank knows for itself */
        if (comm == world) notes()->lost[rank] = lost_of(comm);
        CHECK(comm != world || notes()->lost[rank] != 0);
        status = tutti_comm_shrink(comm, &next);
        CHECK_THAT(status == TUTTI_OK && next != NULL, "%s: %s", tutti_status_name(status), text_of(comm));
        if (status != TUTTI_OK) break;
        CHECK(tutti_epoch(next) == tutti_epoch(comm) + 1 && tutti_size(next) < tutti_size(comm));
        if (comm != world) CHECK(tutti_comm_free(comm) == TUTTI_OK);
    }
    int before = 0;
    for (int other = 0; other < rank; other++) before += !is_victim(other);
    CHECK(tutti_rank(comm) == before && lost_of(comm) == 0);
    use(comm);
    CHECK(tutti_all_reduce(comm, kept, kept, 1, TUTTI_I64, TUTTI_MAX) == TUTTI_OK && *kept >= 1000 + rank);
    check_old(world, made, ended);
    fault_meet(comm);
    self->numbers[SIZES] = tutti_size(comm);
    self->numbers[EPOCHS] = (int64_t)tutti_epoch(comm);
    CHECK(tutti_comm_free(comm) == TUTTI_OK && tutti_comm_free(made) == TUTTI_OK);
}

static void check_survivors(int size, int most_epochs)
{
    int first = 0;
    while (is_victim(first)) first++;
    const struct fault_rank *one = &fault_shared->ranks[first];
    CHECK(one->numbers[SIZES] == size - victim_count && one->numbers[EPOCHS] <= most_epochs);
    for (int rank = first + 1; rank < size; rank++) {
        const struct fault_rank *self = &fault_shared->ranks[rank];
        if (is_victim(rank)) continue;
        CHECK(self->numbers[SIZES] == one->numbers[SIZES] && self->numbers[EPOCHS] == one->numbers[EPOCHS]);
        CHECK_THAT(notes()->lost[rank] == notes()->lost[first], "rank %d: %llx, rank %d: %llx", rank,
                   (unsigned long long)notes()->lost[rank], first, (unsigned long long)notes()->lost[first]);
    }
}

/* ---- Killed while others shrink ----------------------------------------------------------------------------------- */

/* Comms are given up on purpose, and shrunk, again and again; meanwhile ranks are killed. */
static void shrink_often(tutti_comm *world, struct fault_rank *self)
{
    tutti_comm *comm = world, *next = NULL;
    int left = tutti_size(world) - victim_count;
    fault_meet(world);
    self->mark = 1;
    for (int i = 0; i < SHRINKS || tutti_size(comm) > left; i++, comm = next) {
        uint64_t all;
        tutti_barrier(comm);
        if (i < SHRINKS && i % 2 == 0) CHECK(tutti_comm_revoke(comm) == TUTTI_OK);
        CHECK(tutti_comm_agree(comm, i < SHRINKS, &all) == TUTTI_OK && all == (i < SHRINKS));
        CHECK(tutti_comm_revoke(comm) == TUTTI_OK);
        tutti_status status = tutti_comm_shrink(comm, &next);
        if (!CHECK_THAT(status == TUTTI_OK, "%s: %s", tutti_status_name(status), text_of(comm))) return;
        CHECK(tutti_epoch(next) == (uint64_t)i + 1);
        if (comm != world) CHECK(tutti_comm_free(comm) == TUTTI_OK);
        if (i >= SHRINKS) fault_sleep_ms(1); /* until all victims are dead */
    }
    use(comm);
    self->numbers[SIZES] = tutti_size(comm);
    self->numbers[EPOCHS] = (int64_t)tutti_epoch(comm);
    CHECK(tutti_comm_free(comm) == TUTTI_OK);
}

/* ---- On purpose, threads, stopped --------------------------------------------------------------------------------- */

static void revoked(tutti_comm *comm, struct fault_rank *self)
{
    tutti_comm *next = NULL;
    int rank = tutti_rank(comm), x;
    tutti_op op;
    (void)self;
    CHECK(tutti_recv_start(comm, &x, 1, TUTTI_I32, (rank + 1) % tutti_size(comm), TAG, NULL, &op) == TUTTI_OK);
    fault_meet(comm);
    if (rank == 1)
        CHECK(tutti_comm_revoke(comm) == TUTTI_OK && tutti_comm_error(comm) == NULL);
    else
        CHECK(tutti_barrier(comm) == TUTTI_ERR_CANCELLED || tutti_comm_error(comm)->status == TUTTI_ERR_BROKEN);
    if (rank != 1 && tutti_comm_error(comm)->status != TUTTI_ERR_BROKEN)
        tells(comm, TUTTI_ERR_CANCELLED, "rank 1 has revoked the comm");
    CHECK(tutti_wait(op) == TUTTI_ERR_CANCELLED);
    CHECK(tutti_comm_revoke(comm) == TUTTI_OK && lost_of(comm) == 0);
    CHECK(tutti_comm_shrink(comm, &next) == TUTTI_OK && tutti_size(next) == tutti_size(comm));
    CHECK(tutti_rank(next) == rank && tutti_epoch(next) == 1 && tutti_barrier(comm) == TUTTI_ERR_EPOCH);
    use(next);
    CHECK(tutti_comm_free(next) == TUTTI_OK);
}

static void lost_thread(tutti_comm *comm, struct fault_rank *self)
{
    tutti_comm *next = NULL;
    (void)self;
    fault_meet(comm);
    if (tutti_rank(comm) == 1) pthread_exit(NULL);
    CHECK(tutti_barrier(comm) == TUTTI_ERR_PEER_LOST && lost_of(comm) == 2);
    CHECK(tutti_comm_shrink(comm, &next) == TUTTI_OK && tutti_size(next) == tutti_size(comm) - 1);
    if (next == NULL) return;
    use(next);
    CHECK(tutti_comm_free(next) == TUTTI_OK);
}

/* One that is stopped is killed by those that go on without it. */
static void stopped(tutti_comm *comm, struct fault_rank *self)
{
    tutti_comm *next = NULL;
    fault_meet(comm);
    self->mark = 1;
    if (tutti_rank(comm) == victims[0]) raise(SIGSTOP);
    CHECK(tutti_barrier(tutti_within(comm, 100)) == TUTTI_ERR_TIMEOUT && lost_of(comm) == 0);
    tutti_status status = tutti_comm_shrink(tutti_within(comm, 2000), &next);
    CHECK_THAT(status == TUTTI_OK, "%s: %s", tutti_status_name(status), text_of(comm));
    CHECK(tutti_size(next) == tutti_size(comm) - 1 && lost_of(comm) == UINT64_C(1) << victims[0]);
    if (next == NULL) return;
    use(next);
    CHECK(tutti_comm_free(next) == TUTTI_OK);
}

/* Over tcp the others go on without one that is stopped, and it is told so when it is continued. */
static void excluded(tutti_comm *comm, struct fault_rank *self)
{
    tutti_comm *next = NULL;
    fault_meet(comm);
    self->mark = 1;
    if (tutti_rank(comm) == victims[0]) {
        raise(SIGSTOP);
        CHECK(tutti_barrier(tutti_within(comm, 100)) < 0);
        CHECK(tutti_comm_shrink(tutti_within(comm, 200), &next) == TUTTI_ERR_EXCLUDED && next == NULL);
        self->mark = 3;
        return;
    }
    CHECK(tutti_barrier(tutti_within(comm, 100)) == TUTTI_ERR_TIMEOUT);
    tutti_status status = tutti_comm_shrink(tutti_within(comm, 2000), &next);
    CHECK_THAT(status == TUTTI_OK, "%s: %s", tutti_status_name(status), text_of(comm));
    CHECK(tutti_size(next) == tutti_size(comm) - 1 && lost_of(comm) == UINT64_C(1) << victims[0]);
    if (next != NULL) use(next);
    self->mark = 2;
    fault_await_mark(victims[0], 3);
    CHECK(tutti_comm_free(next) == TUTTI_OK);
}

static void continue_victim(struct fault_world *world)
{
    for (int rank = 0; rank < world->size; rank++)
        if (rank != victims[0]) fault_await_mark(rank, 2);
    kill(world->pids[victims[0]], SIGCONT);
}

static void run_excluded(int victim)
{
    struct fault_world world = {.size = 3, .processes = true, .body = excluded, .meanwhile = continue_victim};
    world.settings[0] = "TUTTI_TRANSPORT=tcp";
    world.settings[1] = "TUTTI_HEARTBEAT_MS=60000";
    victims[0] = victim;
    victim_count = 1;
    check_title("rank %d is stopped, tcp", victim);
    fault_run(&world);
}

static void expect_victims(struct fault_world *world)
{
    (void)world;
    for (int i = 0; i < victim_count; i++) fault_expect_end(victims[i]);
}

static void run_stopped(void)
{
    struct fault_world world = {.size = 3, .processes = true, .body = stopped, .meanwhile = expect_victims};
    victims[0] = 1;
    victim_count = 1;
    check_title("a rank is stopped");
    fault_run(&world);
}

/* ---- Simulated ---------------------------------------------------------------------------------------------------- */

struct run {
    int size;
    uint64_t lost[32];
    int sizes[32];
    uint64_t epochs[32];
};

/* Two ranks end where they stand, at any moment of what the others do, who go on until they have done enough. Now and then they
 * give their comm up on purpose, so that many of these moments are in a shrink. */
static int simulated(tutti_comm *world, void *context)
{
    struct run *run = context;
    tutti_comm *comm = world, *next = NULL;
    int rank = tutti_rank(world), done = 0;
    uint64_t all = 0;
    while (done < 40) {
        int64_t x = 1, sum = 0;
        tutti_status status = tutti_all_reduce(comm, &x, &sum, 1, TUTTI_I64, TUTTI_SUM);
        if (status == TUTTI_OK) tutti_spend_ns(1000);
        CHECK(tutti_comm_agree(comm, status == TUTTI_OK, &all) == TUTTI_OK);
        if (comm == world && all == 0) run->lost[rank] = lost_of(comm);
        done += all != 0;
        if (all != 0 && done % 4 != 0) continue;
        if (status == TUTTI_OK) CHECK(tutti_comm_revoke(comm) == TUTTI_OK);
        status = tutti_comm_shrink(comm, &next);
        if (!CHECK_THAT(status == TUTTI_OK, "%s: %s", tutti_status_name(status), text_of(comm))) break;
        if (comm != world) CHECK(tutti_comm_free(comm) == TUTTI_OK);
        comm = next;
    }
    run->sizes[rank] = tutti_size(comm);
    run->epochs[rank] = tutti_epoch(comm);
    if (comm != world) CHECK(tutti_comm_free(comm) == TUTTI_OK);
    return 0;
}

/* Of the address sanitizer, where it is there. */
void __lsan_disable(void) __attribute__((weak));
void __lsan_enable(void) __attribute__((weak));

static void run_simulated(uint64_t number, int ranks_per_host)
{
    int hosts = 5 + (int)(number % 4); /* more than half of the ranks are left */
    struct run run = {.size = ranks_per_host == 0 ? 3 + (int)(number % 14) : hosts * ranks_per_host};
    uint64_t random = number * 77 + 5;
    tutti_sim_death deaths[2];
    tutti_sim_setup setup;
    tutti_sim_report report = {.struct_size = sizeof report};
    tutti_error error = {0};
    for (int i = 0; i < 2; i++)
        deaths[i] = (tutti_sim_death){.rank = (int)(fault_random(&random) % (uint64_t)run.size),
                                      .at_ns = (int64_t)(fault_random(&random) % 60000)};
    if (number % 2 == 0) deaths[0] = (tutti_sim_death){.rank = 0, .at_ns = (int64_t)number * 53};
    check_title("simulated, seed %llu, %d ranks, rank %d ends at %lld ns, %d at %lld", (unsigned long long)number,
                run.size, deaths[0].rank, (long long)deaths[0].at_ns, deaths[1].rank, (long long)deaths[1].at_ns);
    tutti_sim_setup_init(&setup);
    setup.seed = number;
    setup.hosts = ranks_per_host == 0 ? 1 : hosts;
    setup.ranks_per_host = run.size / setup.hosts;
    if (setup.hosts > 1)
        for (int i = 0; i < 2; i++) deaths[i].at_ns *= 20; /* all takes longer there */
    setup.noise_ns = number % 3 == 0 ? 300 : 0;
    setup.stack_bytes = 1 << 18;
    setup.deaths = deaths;
    setup.death_count = 2;
    if (__lsan_disable != NULL) __lsan_disable(); /* what a rank holds that ends where it stands is lost */
    tutti_status status = tutti_sim_run(&setup, simulated, &run, &report, &error);
    if (__lsan_enable != NULL) __lsan_enable();
    CHECK_THAT(status == TUTTI_OK, "%s: %s", tutti_status_name(status), error.text);
    CHECK_THAT(report.time_ns < INT64_C(10000000000), "it took %lld ns", (long long)report.time_ns);
    int first = 0;
    while (first == deaths[0].rank || first == deaths[1].rank) first++;
    for (int rank = first; rank < run.size; rank++) {
        if (rank == deaths[0].rank || rank == deaths[1].rank) continue;
        CHECK_THAT(run.sizes[rank] == run.sizes[first] && run.epochs[rank] == run.epochs[first] &&
                       run.lost[rank] == run.lost[first],
                   "rank %d: %d ranks, epoch %d, lost %llx; rank %d: %d, %d, %llx", rank, run.sizes[rank],
                   (int)run.epochs[rank], (unsigned long long)run.lost[rank], first, run.sizes[first],
                   (int)run.epochs[first], (unsigned long long)run.lost[first]);
    }
}

static void run_everything(int rounds)
{
    for (int processes = 0; processes < 2; processes++) {
        fault_run_body("ordinary", ordinary, RANKS, processes, over_tcp);
        fault_run_body("a rank is late", late, 3, processes, over_tcp);
        fault_run_body("different calls", differing, 3, processes, over_tcp);
        fault_run_body("revoked", revoked, 4, processes, over_tcp);
    }
    fault_run_body("a thread ends", lost_thread, 4, false, over_tcp);
    for (int i = 0; i < rounds; i++) {
        int size = 3 + i % (RANKS - 2);
        choose_victims(size, over_tcp ? 30000 : 4000);
        run_killed("in agreement", agree_often, size);
        check_outcomes(size);
        choose_victims(size, 20000);
        run_killed("in a collective", go_on, size);
        check_survivors(size, victim_count);
        choose_victims(size, over_tcp ? 20000 : 6000);
        run_killed("while others shrink", shrink_often, size);
        memset(notes()->lost, 0, sizeof notes()->lost);
        check_survivors(size, 1000000);
    }
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : SANITIZED ? 4 : 12;
    uint64_t seeds = argc > 2 ? strtoull(argv[2], NULL, 0) : SANITIZED ? 60 : 400;
    seed = argc > 3 ? strtoull(argv[3], NULL, 0) : 20260101;
    setenv("TUTTI_LOG", "error", 1);
    tutti_log_set_level(TUTTI_ERROR); /* that ranks are killed, and what they hold is not given back, is meant */
    fault_begin(190);
    run_stopped();
    run_excluded(1);
    run_excluded(0); /* the one that coordinates */
    for (int way = 0; way < 2; way++) {
        over_tcp = way;
        run_everything(rounds);
    }
    for (uint64_t number = 1; number <= seeds; number++) {
        run_simulated(number, 0);
        run_simulated(number, 1 + (int)(number % 2));
    }
    return fault_end();
}
