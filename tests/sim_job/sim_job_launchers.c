/* SPDX-License-Identifier: Apache-2.0
 *
 * In place of the tool's job.c, hosts.c, output.c and guard.c, as far as job_heal.c knows them. Messages between launchers take a random
 * time, keep their order, and are held up while a host is silent. Guards end processes as guard.c does: on order, when others have waited
 * too long for them, and some time after the lease has run out.
 */
#include "sim_job/sim_job_state.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum { FLIGHT_MS = 20, KILL = 9, PORT = 20123 };

static struct sim_host *host_of(const struct job *job)
{
    return job == &sim.main ? NULL : (struct sim_host *)(void *)job->output;
}

/* ---- Messages ---------------------------------------------------------------------------------------------------------------------- */

static struct letter *post(struct sim_host *host, bool to_main)
{
    int64_t now = tti_sim_now_ns(), from = now < host->silent_until_ns ? host->silent_until_ns : now;
    for (int i = 0; i < LETTERS_MOST; i++) {
        struct letter *letter = &sim.letters[i];
        if (letter->waits) continue;
        *letter = (struct letter){.waits = true, .to_main = to_main, .host = host->number};
        letter->at_ns = from + (int64_t)(tti_sim_random() % (FLIGHT_MS * MS));
        if (letter->at_ns <= host->last_ns[to_main]) letter->at_ns = host->last_ns[to_main] + 1;
        host->last_ns[to_main] = letter->at_ns;
        return letter;
    }
    blame("%d messages are under way", LETTERS_MOST);
    return &sim.letters[0];
}

/* Also what is under way is held up. */
static bool is_due(const struct letter *letter)
{
    return letter->waits && letter->at_ns <= tti_sim_now_ns() &&
           tti_sim_now_ns() >= sim.hosts[letter->host].silent_until_ns;
}

void output_write_report(struct output *output, const struct remote_report *report)
{
    struct sim_host *host = (struct sim_host *)(void *)output;
    if (!host->gone) post(host, true)->report = *report;
}

void output_say(struct output *output, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sim.last_said, sizeof sim.last_said, format, arguments);
    va_end(arguments);
    if (getenv("VERBOSE") != NULL)
        printf("%9.3f s: %s: %s\n", (double)tti_sim_now_ns() / 1e9, output == NULL ? "main" : "a host", sim.last_said);
}

void hosts_order(struct hosts *hosts, int number, const struct remote_order *order)
{
    (void)hosts;
    if (!sim.hosts[number].closed) post(&sim.hosts[number], false)->order = *order;
}

void hosts_close_control(struct hosts *hosts, int number)
{
    (void)hosts;
    sim.hosts[number].closed = true;
}

/* ---- Hosts ------------------------------------------------------------------------------------------------------------------------- */

const char *hosts_name(const struct hosts *hosts, int host)
{
    (void)hosts;
    return sim.address[host];
}

const char *hosts_title(const struct hosts *hosts, int host, char text[96])
{
    snprintf(text, 96, "host %s", hosts_name(hosts, host));
    return text;
}

int hosts_first(const struct hosts *hosts, int host)
{
    (void)hosts;
    return sim.hosts[host].first;
}

int hosts_slots(const struct hosts *hosts, int host)
{
    (void)hosts;
    return sim.hosts[host].slots;
}

bool hosts_replace(const struct run_values *values, struct launch *launch, int lost, int spare, int generation)
{
    struct sim_host *from = &sim.hosts[lost], *to = &sim.hosts[spare];
    (void)values;
    if (to->closed || to->gone) return false;
    to->first = from->first;
    to->slots = from->slots;
    from->slots = 0;
    if (to->first == 0) launch->place.master_addr = sim.address[spare];
    struct letter *letter = post(to, false);
    letter->begins = true;
    letter->generation = generation;
    letter->ends = launch->ends;
    letter->first = to->first;
    letter->slots = to->slots;
    for (int rank = 0; rank < sim.world; rank++) letter->lives[rank] = launch->lives[rank];
    return true;
}

/* ---- Processes --------------------------------------------------------------------------------------------------------------------- */

static void start_process(struct sim_host *host, int index)
{
    struct process *process = &host->processes[index];
    tutti_error error;
    int rank = host->launch.place.first + index;
    for (int i = 0; i < sim.host_count; i++)
        for (int j = 0; j < RANKS_MOST; j++)
            if (sim.hosts[i].processes[j].runs && sim.hosts[i].processes[j].rank == rank)
                blame("rank %d is started on host %d, and one runs on host %d", rank, host->number, i);
    *process = (struct process){.host = host->number, .rank = rank, .pid = ++sim.pids, .runs = true};
    if (tti_task_start(&process->task, rank_live, process, &error) != TUTTI_OK)
        blame("no task: %s", error.text);
    else
        tti_sim_task_lead(process->task.simulated);
}

void kill_process(struct process *process, int signal)
{
    if (!process->runs || process->ended) return;
    tti_sim_task_kill(process->task.simulated);
    tti_sim_close_sockets(process->task.simulated);
    process->ended = true;
    process->killed = signal != 0;
}

struct process *process_of(int rank)
{
    for (int i = 0; i < sim.host_count; i++)
        for (int j = 0; j < RANKS_MOST; j++)
            if (sim.hosts[i].processes[j].runs && sim.hosts[i].processes[j].rank == rank)
                return &sim.hosts[i].processes[j];
    return NULL;
}

void kill_host(struct sim_host *host)
{
    for (int i = 0; i < RANKS_MOST; i++) {
        if (!host->processes[i].runs) continue;
        kill_process(&host->processes[i], KILL);
        tti_task_join(&host->processes[i].task);
        host->processes[i].runs = false;
    }
    host->gone = true;
}

/* ---- A guard ----------------------------------------------------------------------------------------------------------------------- */

/* As guard.c makes it before the first rank is started. */
static void begin_host(struct sim_host *host)
{
    tutti_error error;
    struct place *place = &host->launch.place;
    host->begun = true;
    host->lease_ms = job_now_ms() + HEARTBEAT_MS;
    if (tutti_board_create("launched", place->first, host->launch.size, place->world, &host->board, &error) !=
        TUTTI_OK) {
        blame("no board: %s", error.text);
        return;
    }
    tutti_board_allow(host->board, host->launch.max_restarts);
    tutti_board_link(host->board, true);
    for (int rank = 0; host->launch.lives != NULL && rank < place->world; rank++)
        for (int life = 0; life < host->launch.lives[rank]; life++)
            tutti_board_end(host->board, rank, (unsigned)host->launch.ends);
    if (host->launch.generation > 0) tutti_board_move(host->board, (unsigned)host->launch.generation, NULL);
    tutti_board_name(host->board, host->board_name, sizeof host->board_name);
    host->job.board = host->board;
    if (!heal_open(&host->job)) blame("no memory for a launcher");
    for (int i = 0; i < host->launch.size; i++) start_process(host, i);
}

static void note_end(struct sim_host *host, struct process *process)
{
    int index = process->rank - host->launch.place.first;
    int wait_status = process->killed ? KILL : process->status << 8;
    tti_task_join(&process->task);
    process->runs = false;
    process->held = true;
    const struct guard_report report = {.event = GUARD_ENDED,
                                        .rank = index,
                                        .pid = process->pid,
                                        .value = wait_status,
                                        .follows = tutti_board_follows(host->board, process->rank),
                                        .joined = tutti_board_formed(host->board)};
    heal_on_gone(&host->job, &report);
    if (!heal_takes(&host->job, &report)) job_take_end(&host->job, &report);
}

/* Returns true if the ranks of the host are ended. */
static bool check_lease(struct sim_host *host)
{
    int64_t left_ms = host->lease_ms - job_now_ms();
    if (left_ms > 0 && !host->excluded) return false;
    if (!host->excluded) {
        host->excluded = true;
        tutti_board_exclude(host->board);
        heal_on_excluded(&host->job);
    }
    if (left_ms + GUARD_EXCLUDED_MS > 0) return false;
    kill_host(host);
    return true;
}

static void guard_step(struct sim_host *host)
{
    const struct place *place = &host->launch.place;
    for (int i = 0; i < host->launch.size; i++)
        if (host->processes[i].runs && host->processes[i].ended) note_end(host, &host->processes[i]);
    if (check_lease(host)) return;
    for (int rank = 0; rank < sim.world; rank++) {
        if (!tutti_board_late(host->board, rank)) continue;
        if (rank >= place->first && rank < place->first + host->launch.size)
            kill_process(&host->processes[rank - place->first], KILL);
        else
            heal_on_late(&host->job, rank);
    }
    unsigned asked = tutti_board_asked(host->board);
    if (asked > host->asked) heal_on_asked(&host->job, (int)(asked - 1));
    if (asked > host->asked) host->asked = asked;
}

static void guard_obey(struct sim_host *host, const struct guard_command *command)
{
    struct process *process = &host->processes[command->value < 0 || command->value >= RANKS_MOST ? 0 : command->value];
    const char *master = command->text[0] != '\0' ? command->text : NULL;
    switch ((enum guard_order)command->order) {
    case GUARD_RESTART:
        if (process->runs || !process->held) break;
        tutti_board_restart(host->board, process->rank);
        tutti_board_move(host->board, (unsigned)command->generation, master);
        start_process(host, command->value);
        break;
    case GUARD_MOVE: tutti_board_move(host->board, (unsigned)command->generation, master); break;
    case GUARD_NOTE:
        process->held = false;
        tutti_board_note(host->board, process->rank, process->pid, process->killed ? KILL : process->status << 8);
        break;
    case GUARD_END: kill_process(process, KILL); break;
    case GUARD_LEASE:
        if (!host->excluded) host->lease_ms = command->until_ms;
        break;
    case GUARD_COUNT: tutti_board_end(host->board, command->value, (unsigned)command->number); break;
    case GUARD_SETTLE: tutti_board_settle(host->board, (unsigned)command->value, (unsigned)command->number); break;
    case GUARD_SIGNAL:
    case GUARD_FINISH: break;
    }
}

/* ---- What job_heal.c asks of its launcher ------------------------------------------------------------------------------------------ */

int64_t job_now_ms(void)
{
    return 1000 + tti_sim_now_ns() / MS;
}

const char *job_describe(int wait_status, char text[96])
{
    snprintf(text, 96, "ended with %x", (unsigned)wait_status);
    return text;
}

const char *job_describe_host(const struct job *job, int host, int wait_status, char text[96])
{
    (void)job, (void)host;
    return job_describe(wait_status, text);
}

bool job_follows(int wait_status, bool follows)
{
    return WIFEXITED(wait_status) && follows;
}

/* The launcher that decides has shells in place of ranks: to end one closes the connection. */
void job_send_order(struct job *job, const struct guard_command *command)
{
    struct sim_host *host = host_of(job);
    if (host != NULL && !host->gone) guard_obey(host, command);
}

void job_fail(struct job *job, int status)
{
    (void)status;
    if (job == &sim.main) blame("the job ends: %s", sim.last_said);
    job->step = STEP_GRACE;
}

void job_take_end(struct job *job, const struct guard_report *report)
{
    struct sim_host *host = host_of(job);
    host->processes[report->rank].over = true;
    if (report->value != 0 && !host->excluded)
        blame("rank %d ended with %x, and is not started again: %s", job->launch->place.first + report->rank,
              (unsigned)report->value, sim.last_said);
}

/* ---- Launchers --------------------------------------------------------------------------------------------------------------------- */

void launchers_begin(void)
{
    sim.values.max_restarts = 1000;
    sim.launch = (struct launch){
        .size = sim.host_count, .most = sim.host_count, .heals = true, .hosts = (struct hosts *)(void *)&sim};
    sim.launch.place = (struct place){
        .world = sim.world, .nodes = sim.host_count - sim.spares, .master_addr = sim.address[0], .master_port = PORT};
    sim.main = (struct job){.values = &sim.values, .launch = &sim.launch, .ranks_left = sim.launch.place.nodes};
    sim.main.ended = calloc((size_t)sim.host_count, sizeof *sim.main.ended);
    if (sim.main.ended == NULL || !heal_open(&sim.main)) blame("no memory for the launcher");
    for (int i = 0; i < sim.host_count && !sim.failed; i++) {
        struct sim_host *host = &sim.hosts[i];
        const bool waits = i >= sim.launch.place.nodes;
        host->number = i;
        host->first = i * sim.slots;
        host->slots = waits ? 0 : sim.slots;
        host->launch = (struct launch){
            .size = host->slots, .most = sim.slots, .remote = true, .heals = true, .max_restarts = 1000};
        host->launch.place = sim.launch.place;
        host->launch.place.first = host->first;
        host->launch.place.node = i;
        host->job = (struct job){
            .values = &sim.values, .launch = &host->launch, .output = (struct output *)(void *)host};
        host->heard_ms = job_now_ms();
        post(host, true)->report = (struct remote_report){.event = REMOTE_STARTED};
        if (!waits) begin_host(host);
    }
}

/* A spare host takes the ranks of a lost one. Where these were all, nobody knows how many epochs there were. */
static void begin_spare(struct sim_host *host, const struct letter *letter)
{
    if (letter->slots == sim.world) sim.sum_count = 0;
    host->launch.size = letter->slots;
    host->launch.place.first = letter->first;
    host->launch.place.master_addr = sim.launch.place.master_addr;
    host->launch.generation = letter->generation;
    host->launch.ends = letter->ends;
    host->launch.lives = calloc((size_t)sim.world, sizeof *host->launch.lives);
    if (host->launch.lives == NULL) blame("no memory");
    if (host->launch.lives != NULL) memcpy(host->launch.lives, letter->lives, (size_t)sim.world * sizeof(int));
    begin_host(host);
}

static void deliver(struct letter *letter)
{
    struct sim_host *host = &sim.hosts[letter->host];
    struct letter now = *letter;
    letter->waits = false;
    if (now.to_main) heal_hear(&sim.main, now.host, &now.report);
    if (now.to_main || host->gone) return;
    host->heard_ms = job_now_ms();
    if (now.begins)
        begin_spare(host, &now);
    else if (host->begun)
        heal_obey(&host->job, &now.order);
}

/* In the order in which they come. */
static void deliver_all(void)
{
    for (;;) {
        struct letter *first = NULL;
        for (int i = 0; i < LETTERS_MOST; i++)
            if (is_due(&sim.letters[i]) && (first == NULL || sim.letters[i].at_ns < first->at_ns))
                first = &sim.letters[i];
        if (first == NULL) return;
        deliver(first);
    }
}

/* The end of a host's launcher is seen by the end of its shell, or the connection, unless it is silent. */
static void see_ends(void)
{
    for (int i = 0; i < sim.host_count; i++) {
        struct sim_host *host = &sim.hosts[i];
        bool seen = host->gone && tti_sim_now_ns() >= host->silent_until_ns;
        if (!seen || sim.main.ended[i]) continue;
        sim.main.ended[i] = true;
        (void)heal_host_ended(&sim.main, i, KILL);
    }
}

bool all_have_ended(void)
{
    int over = 0;
    for (int i = 0; i < sim.host_count; i++)
        for (int j = 0; j < RANKS_MOST && !sim.hosts[i].gone; j++) over += sim.hosts[i].processes[j].over;
    return over >= sim.world;
}

void launchers_step(void)
{
    deliver_all();
    for (int i = 0; i < sim.host_count; i++) {
        struct sim_host *host = &sim.hosts[i];
        bool waits = !host->begun && !host->gone;
        if (waits && job_now_ms() - host->heard_ms > HEARTBEAT_MS + SPARE_MORE_MS) host->gone = true;
        if (host->begun && !host->gone && host->closed && tti_sim_now_ns() >= host->silent_until_ns) kill_host(host);
        if (!host->begun || host->gone) continue;
        guard_step(host);
        if (!host->gone) heal_check_clock(&host->job);
    }
    see_ends();
    heal_check_clock(&sim.main);
}
