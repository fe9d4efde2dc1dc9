/* SPDX-License-Identifier: Apache-2.0
 *
 * The launcher's board. The launcher's guard makes a memfd and keeps it; ranks open it through /proc when they need it,
 * and hold no descriptor of it that a program between launcher and rank could close.
 */
#include "world/board.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/round.h"
#include "base/status.h"
#include "world/board_page.h"
#include "world/names.h"
#include "world/rows.h"
#include "world/ticket.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Returns the bytes of the page without rows, for `room` processes of this host at most and `most` of the job. */
static size_t page_bytes(int room, int most)
{
    size_t each = sizeof(struct note) + sizeof(struct tti_ticket);
    return sizeof(struct tti_board_page) + (size_t)room * each + (size_t)most * sizeof(struct mark) +
           tti_round_up((size_t)most * sizeof(uint32_t), sizeof(uint64_t));
}

static bool is_here(const struct tti_board_page *page, int process)
{
    return process >= page->first && process < page->first + page->room;
}

static struct mark *mark_of(struct tti_board_page *page, int process)
{
    if (process < 0 || process >= page->most) return NULL;
    return (struct mark *)(void *)&page->notes[page->room] + process;
}

struct tti_ticket *tti_board_tickets(struct tti_board_page *page)
{
    struct mark *marks = (struct mark *)(void *)&page->notes[page->room];
    return (struct tti_ticket *)(void *)&marks[page->most];
}

/* Returns the word of any process of the job that holds the generation + 1 in which others have waited too long for it;
 * 0: none. */
static _Atomic uint32_t *late_of(struct tti_board_page *page, int process)
{
    _Atomic uint32_t *late = (_Atomic uint32_t *)(void *)(tti_board_tickets(page) + page->room);
    return process < 0 || process >= page->most ? NULL : late + process;
}

/* Returns the rows, one for each rank; each process has as many as this process's options say. */
static struct tti_rows *rows_of(struct tti_board_page *page)
{
    return (struct tti_rows *)(void *)((char *)page +
                                       tti_round_up(page_bytes(page->room, page->most), _Alignof(struct tti_rows)));
}

/* Returns true if so many bytes hold all that the page describes. */
static bool has_rows(struct tti_board_page *page, size_t bytes)
{
    size_t before = tti_round_up(page_bytes(page->room, page->most), _Alignof(struct tti_rows));
    const struct tti_rows *rows = rows_of(page);
    if (bytes < before + sizeof *rows || rows->each < 1 || rows->count != page->room * rows->each) return false;
    return rows->first == page->first * rows->each && bytes - before >= tti_rows_bytes(rows->count);
}

static int count_ranks_each(void)
{
    tutti_options options;
    enum { MOST = 1024 };
    if (tutti_options_init(&options, NULL) != TUTTI_OK || options.ranks < 1) return 1;
    return options.ranks < MOST ? (int)options.ranks : MOST;
}

/* ---- The launcher's side --------------------------------------------------------------------------------------- */

struct tti_board_page *tti_board_page_of(const tutti_board *board)
{
    return (struct tti_board_page *)(void *)board->mapping.base;
}

static struct tti_board_page *page_of(tutti_board *board)
{
    return tti_board_page_of(board);
}

static int size_of(const struct tti_board_page *page)
{
    return atomic_load_explicit(&page->size, memory_order_acquire);
}

/* `room` and `most`: how many of these there can be, when the job has grown. */
static tutti_status create(const struct tti_board_page *about, const char *job, tutti_board **board, tutti_error *error)
{
    tutti_board *made = tti_calloc(1, sizeof *made);
    if (made == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for a board");
    int each = count_ranks_each(), room = about->room;
    size_t bytes = tti_round_up(page_bytes(room, about->most), _Alignof(struct tti_rows)) + tti_rows_bytes(room * each);
    tutti_status status = tti_mapping_create(&made->mapping, bytes, true, true, error);
    if (status != TUTTI_OK) {
        tti_free(made);
        return status;
    }
    struct tti_board_page *page = page_of(made);
    *page = *about;
    strcpy(page->job, job);
    page->keeper = (int32_t)getpid();
    tti_rows_init(rows_of(page), about->first * each, room * each, each);
    page->magic = BOARD_MAGIC;
    *board = made;
    return TUTTI_OK;
}

static bool is_name(const char *job)
{
    return job != NULL && strlen(job) < sizeof((struct tti_board_page *)NULL)->job;
}

tutti_status tutti_board_create(const char *job, int first, int count, int size, tutti_board **board,
                                tutti_error *error)
{
    if (board == NULL) return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "the place for the board is NULL");
    *board = NULL;
    if (!is_name(job) || first < 0 || count < 1 || first > size - count)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                             "a board of processes %d to %d - 1 of %d of the job \"%.64s\"", first, first + count, size,
                             job == NULL ? "" : job);
    const struct tti_board_page about = {.first = first, .room = count, .size = size, .most = size};
    return create(&about, job, board, error);
}

tutti_status tutti_board_create_to_grow(const char *job, int count, int most, tutti_board **board, tutti_error *error)
{
    if (board == NULL) return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "the place for the board is NULL");
    *board = NULL;
    if (!is_name(job) || count < 1 || most < count)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                             "a board of %d processes, and of %d at most, of the job \"%.64s\"", count, most,
                             job == NULL ? "" : job);
    const struct tti_board_page about = {.room = most, .size = count, .most = most, .grows = true};
    return create(&about, job, board, error);
}

void tutti_board_name(const tutti_board *board, char *text, size_t bytes)
{
    snprintf(text, bytes, "/proc/%d/fd/%d", (int)getpid(), board->mapping.fd);
}

void tutti_board_note(tutti_board *board, int process, int pid, int wait_status)
{
    struct tti_board_page *page = page_of(board);
    int noted = atomic_load_explicit(&page->noted, memory_order_relaxed);
    if (!is_here(page, process) || noted == page->room) return;
    page->notes[noted] = (struct note){.process = process, .pid = pid, .status = wait_status};
    atomic_store_explicit(&page->noted, noted + 1, memory_order_release);
}

static struct mark *mark_on(const tutti_board *board, int process)
{
    return mark_of((struct tti_board_page *)(void *)board->mapping.base, process);
}

bool tutti_board_follows(const tutti_board *board, int process)
{
    const struct mark *mark = mark_on(board, process);
    return mark != NULL && atomic_load_explicit(&mark->follows, memory_order_relaxed) != 0;
}

void tutti_board_end(tutti_board *board, int process, unsigned number)
{
    struct tti_board_page *page = page_of(board);
    struct mark *mark = mark_of(page, process);
    if (mark == NULL) return;
    uint32_t end = number != 0 ? number : atomic_load_explicit(&page->ends, memory_order_relaxed) + 1;
    uint64_t lives = (atomic_load_explicit(&mark->ended, memory_order_relaxed) >> 32) + 1;
    atomic_store_explicit(&mark->ended, lives << 32 | end, memory_order_release);
    atomic_store_explicit(&page->ends, end, memory_order_release);
}

void tutti_board_allow(tutti_board *board, int restarts_most)
{
    page_of(board)->restarts_most = restarts_most;
    page_of(board)->watches = true;
}

void tutti_board_link(tutti_board *board, bool decides)
{
    page_of(board)->linked = true;
    page_of(board)->decides = decides;
}

unsigned tutti_board_asked(const tutti_board *board)
{
    const struct tti_board_page *page = (const struct tti_board_page *)(void *)board->mapping.base;
    uint32_t asked = atomic_load_explicit(&page->asked, memory_order_acquire);
    return asked > atomic_load_explicit(&page->lost, memory_order_relaxed) >> 32 ? asked : 0;
}

void tutti_board_settle(tutti_board *board, unsigned epoch, unsigned number)
{
    atomic_store_explicit(&page_of(board)->lost, (uint64_t)(epoch + 1) << 32 | number, memory_order_release);
}

void tutti_board_restart(tutti_board *board, int process)
{
    struct mark *mark = mark_on(board, process);
    if (mark != NULL) {
        atomic_store_explicit(&mark->follows, 0, memory_order_relaxed);
        atomic_fetch_add_explicit(&mark->restarts, 1, memory_order_relaxed);
    }
    tti_rows_clear(rows_of(page_of(board)), process);
}

void tutti_board_move(tutti_board *board, unsigned generation, const char *master)
{
    struct tti_board_page *page = page_of(board);
    if (master != NULL) snprintf(page->master, sizeof page->master, "%s", master);
    atomic_store_explicit(&page->generation, generation, memory_order_release);
}

void tutti_board_exclude(tutti_board *board)
{
    atomic_store_explicit(&page_of(board)->excluded, 1, memory_order_release);
}

bool tutti_board_formed(const tutti_board *board)
{
    const struct tti_board_page *page = (const struct tti_board_page *)(void *)board->mapping.base;
    return atomic_load_explicit(&page->formed, memory_order_relaxed) != 0;
}

bool tutti_board_late(const tutti_board *board, int process)
{
    struct tti_board_page *page = (struct tti_board_page *)(void *)board->mapping.base;
    _Atomic uint32_t *late = late_of(page, process);
    uint32_t now = atomic_load_explicit(&page->generation, memory_order_relaxed) + 1;
    return late != NULL && atomic_exchange_explicit(late, 0, memory_order_acq_rel) == now;
}

void tutti_board_free(tutti_board *board)
{
    if (board == NULL) return;
    tti_mapping_destroy(&board->mapping);
    tti_free(board);
}

/* ---- Whoever looks at it --------------------------------------------------------------------------------------- */

/* Finds a board among a process's descriptors; -1: there is none. */
static int find_board(int keeper, DIR *folder, struct tti_mapping *mapping)
{
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        char path[64], target[64] = "";
        struct stat about;
        snprintf(path, sizeof path, "/proc/%d/fd/%.16s", keeper, entry->d_name);
        if (readlink(path, target, sizeof target - 1) < 0 || strncmp(target, "/memfd:tutti", 12) != 0) continue;
        int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
        if (fd < 0) return -1;
        bool large = fstat(fd, &about) == 0 && (size_t)about.st_size >= sizeof(struct tti_board_page);
        if (!large) (void)close(fd);
        if (!large || tti_mapping_open(mapping, fd, (size_t)about.st_size, NULL) != TUTTI_OK) continue;
        struct tti_board_page *page = (struct tti_board_page *)(void *)mapping->base;
        bool good = page->magic == BOARD_MAGIC && page->room > 0 && page->most >= page->room &&
                    page->keeper == keeper && page_bytes(page->room, page->most) <= mapping->bytes &&
                    has_rows(page, mapping->bytes);
        if (good) return 0;
        tti_mapping_destroy(mapping);
    }
    errno = ENOENT;
    return -1;
}

tutti_status tutti_board_attach(int keeper, tutti_board **board, tutti_error *error)
{
    char path[64];
    *board = NULL;
    snprintf(path, sizeof path, "/proc/%d/fd", keeper);
    DIR *folder = opendir(path);
    if (folder == NULL)
        return tti_error_set(error, TUTTI_ERR_SYSTEM, errno, "the descriptors of process %d cannot be read", keeper);
    tutti_board *made = tti_calloc(1, sizeof *made);
    int found = made == NULL ? -1 : find_board(keeper, folder, &made->mapping), why = errno;
    (void)closedir(folder);
    if (found == 0) *board = made;
    if (found == 0) return TUTTI_OK;
    tti_free(made);
    if (made == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for a board");
    return tti_error_set(error, TUTTI_ERR_SYSTEM, why, "process %d keeps no board of a job that can be read", keeper);
}

void tutti_board_describe(const tutti_board *board, tutti_board_about *about)
{
    struct tti_board_page *page = (struct tti_board_page *)(void *)board->mapping.base;
    const struct tti_rows *rows = rows_of(page);
    uint32_t formed = atomic_load_explicit(&page->formed, memory_order_relaxed);
    int size = size_of(page), here = page->grows ? size : page->room;
    *about = (tutti_board_about){.struct_size = sizeof *about,
                                 .keeper = page->keeper,
                                 .processes = here,
                                 .processes_of_job = size,
                                 .first_rank = rows->first,
                                 .ranks = here * rows->each,
                                 .waiting = tti_tickets_count(page),
                                 .processes_most = page->grows ? page->most : 0,
                                 .restarts = (int)atomic_load_explicit(&page->generation, memory_order_relaxed),
                                 .restarts_most = page->restarts_most,
                                 .gathers = page->gathers != 0,
                                 .formed = formed != 0,
                                 .epoch = formed == 0 ? 0 : formed - 1};
    snprintf(about->job, sizeof about->job, "%.255s", page->job);
    tutti_text_printable(about->job);
}

/* Adds what other ranks know of this one: a rank that waits for nobody, and has shown nothing for a while, is known to
 * those that waited for it. */
static void add_told(const struct tti_rows *rows, tutti_board_row *row)
{
    struct tti_row_facts facts;
    int64_t now = tti_now_ns();
    for (int rank = rows->first; rank < rows->first + rows->count; rank++) {
        if (rank == row->rank || !tti_rows_read(rows, rank, &facts)) continue;
        if (facts.blamed != row->rank || now - facts.told_ns >= row->age_ns) continue;
        row->age_ns = now - facts.told_ns;
        snprintf(row->op, sizeof row->op, "%s", facts.told);
    }
}

static void add_end(const struct tti_board_page *page, tutti_board_row *row)
{
    int noted = atomic_load_explicit(&page->noted, memory_order_acquire);
    for (int i = 0; i < noted && i < page->room; i++) {
        if (page->notes[i].process != row->process) continue;
        row->ended = true;
        row->wait_status = page->notes[i].status;
    }
}

/* Adds what the launcher of the rank's host has told. */
static void add_far(const struct tti_row_facts *facts, tutti_board_row *row)
{
    memcpy(row->host, facts->host, sizeof row->host);
    row->host[sizeof row->host - 1] = '\0';
    row->memory_bytes = facts->memory_bytes;
    row->state = facts->state;
    row->restarts = facts->restarts;
    row->ended = facts->ended != 0;
    row->wait_status = facts->wait_status;
    tutti_text_printable(row->op);
    tutti_text_printable(row->device);
    tutti_text_printable(row->host);
}

bool tutti_board_row_read(const tutti_board *board, int rank, tutti_board_row *row)
{
    struct tti_board_page *page = (struct tti_board_page *)(void *)board->mapping.base;
    const struct tti_rows *rows = rows_of(page);
    struct tti_row_facts facts;
    int64_t now = tti_now_ns();
    if (rank < rows->first || rank >= rows->first + rows->count) return false;
    bool joined = tti_rows_read(rows, rank, &facts);
    const struct mark *mark = mark_of(page, rank / rows->each);
    *row = (tutti_board_row){.struct_size = sizeof *row,
                             .rank = rank,
                             .process = rank / rows->each,
                             .pid = facts.pid,
                             .epoch = facts.epoch,
                             .restarts = (int)atomic_load_explicit(&mark->restarts, memory_order_relaxed),
                             .awaited = facts.awaited,
                             .waits_ns = facts.since_ns == 0 ? 0 : now - facts.since_ns,
                             .age_ns = joined ? now - facts.seen_ns : 0,
                             .ops = facts.ops,
                             .bytes = facts.bytes,
                             .waited_ns = facts.waited_ns,
                             .skew_mean_ns = facts.ops == 0 ? 0 : facts.skew_ns / (int64_t)facts.ops,
                             .skew_max_ns = facts.skew_most_ns};
    snprintf(row->op, sizeof row->op, "%s", facts.op);
    snprintf(row->device, sizeof row->device, "%s", facts.device);
    if (page->gathers != 0) {
        add_far(&facts, row);
        return true;
    }
    if (joined && facts.since_ns == 0) add_told(rows, row);
    tutti_text_printable(row->op);
    tutti_text_printable(row->device);
    add_end(page, row);
    return true;
}

void tutti_board_gather(tutti_board *board)
{
    page_of(board)->gathers = 1;
}

void tutti_board_row_write(tutti_board *board, const tutti_board_row *row)
{
    int64_t now = tti_now_ns();
    struct tti_row_facts facts = {.pid = row->pid,
                                  .awaited = row->awaited,
                                  .epoch = row->epoch,
                                  .blamed = TTI_ROW_NOBODY,
                                  .since_ns = row->waits_ns == 0 ? 0 : now - row->waits_ns,
                                  .seen_ns = now - row->age_ns,
                                  .ops = row->ops,
                                  .bytes = row->bytes,
                                  .waited_ns = row->waited_ns,
                                  .skew_ns = row->skew_mean_ns * (int64_t)row->ops,
                                  .skew_most_ns = row->skew_max_ns,
                                  .memory_bytes = row->memory_bytes,
                                  .state = row->state,
                                  .restarts = row->restarts,
                                  .ended = row->ended,
                                  .wait_status = row->wait_status};
    snprintf(facts.op, sizeof facts.op, "%s", row->op);
    snprintf(facts.device, sizeof facts.device, "%s", row->device);
    snprintf(facts.host, sizeof facts.host, "%s", row->host);
    tti_rows_write(rows_of(page_of(board)), row->rank, &facts);
}

bool tutti_board_is_watched(const tutti_board *board)
{
    return tti_rows_are_watched(rows_of(tti_board_page_of(board)));
}

void tutti_board_watch(tutti_board *board, int seconds)
{
    tti_rows_watch(rows_of(page_of(board)), seconds);
}

/* ---- The ranks' side ------------------------------------------------------------------------------------------- */

static bool is_of(const struct tti_board *board, const char *job)
{
    const struct tti_board_page *page = board->page;
    return page->magic == BOARD_MAGIC && strncmp(page->job, job, sizeof page->job) == 0 && page->room > 0 &&
           page->most >= page->room && page_bytes(page->room, page->most) <= board->bytes;
}

/* A world that grows has had fewer processes, or is to have more. */
static bool has_size(const struct tti_board_page *page, int process_count)
{
    return page->grows ? process_count <= page->most : size_of(page) == process_count;
}

static void map(struct tti_board *board, const char *name, bool writes)
{
    struct stat about;
    if (name == NULL || name[0] == '\0') return;
    int fd = open(name, (writes ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return;
    if (fstat(fd, &about) == 0 && (size_t)about.st_size >= sizeof *board->page) {
        size_t bytes = (size_t)about.st_size;
        void *base = mmap(NULL, bytes, writes ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
        if (base != MAP_FAILED) {
            board->page = base;
            board->bytes = bytes;
        }
    }
    (void)close(fd);
}

void tti_board_open(struct tti_board *board, const char *name, const char *job, int process_count, int ranks_each)
{
    *board = (struct tti_board){.ranks_each = ranks_each};
    map(board, name, false);
    if (board->page != NULL && (!is_of(board, job) || !has_size(board->page, process_count))) tti_board_close(board);
    board->generation = tti_board_generation(board);
    board->size = tti_board_size(board);
}

struct tti_board_page *tti_board_open_page(struct tti_board *board, const char *name, const char *job)
{
    *board = (struct tti_board){.ranks_each = 1};
    map(board, name, true);
    if (board->page != NULL && !is_of(board, job)) tti_board_close(board);
    return (struct tti_board_page *)(uintptr_t)board->page;
}

struct tti_rows *tti_board_open_rows(struct tti_board *board, const char *name, const char *job)
{
    struct tti_board_page *page = tti_board_open_page(board, name, job);
    return page == NULL || !has_rows(page, board->bytes) ? NULL : rows_of(page);
}

void tti_board_follow(const char *name, const char *job, int process, bool follows)
{
    struct tti_board board;
    struct tti_board_page *page = tti_board_open_page(&board, name, job);
    struct mark *mark = page == NULL ? NULL : mark_of(page, process);
    if (mark != NULL) atomic_store_explicit(&mark->follows, follows, memory_order_relaxed);
    tti_board_close(&board);
}

void tti_board_form(const char *name, const char *job, uint32_t epoch)
{
    struct tti_board board;
    struct tti_board_page *page = tti_board_open_page(&board, name, job);
    uint32_t before = page == NULL ? UINT32_MAX : atomic_load_explicit(&page->formed, memory_order_relaxed);
    while (before <= epoch && !atomic_compare_exchange_weak_explicit(&page->formed, &before, epoch + 1,
                                                                     memory_order_relaxed, memory_order_relaxed)) {}
    tti_board_close(&board);
}

bool tutti_board_was_formed(const char *name, const char *job)
{
    struct tti_board board;
    tti_board_open_page(&board, name, job);
    const bool formed = tti_board_epochs(&board) > 0;
    tti_board_close(&board);
    return formed;
}

bool tti_board_end(const char *name, const char *job, const struct tti_board *seen, int process)
{
    struct tti_board board;
    struct tti_board_page *page = tti_board_open_page(&board, name, job);
    bool can = page != NULL && page->watches && (page->decides || is_here(page, process));
    _Atomic uint32_t *late = can ? late_of(page, process) : NULL;
    if (late != NULL) atomic_store_explicit(late, seen->generation + 1, memory_order_release);
    bool told = late != NULL && kill((pid_t)page->keeper, SIGUSR1) == 0;
    tti_board_close(&board);
    return told;
}

static const struct mark *mark_at(const struct tti_board *board, int process)
{
    bool none = board == NULL || board->page == NULL;
    return none ? NULL : mark_of((struct tti_board_page *)(uintptr_t)board->page, process);
}

bool tti_board_is_here(const struct tti_board *board, int process)
{
    return mark_at(board, process) != NULL && is_here(board->page, process);
}

bool tti_board_counts(const struct tti_board *board, int process)
{
    return mark_at(board, process) != NULL && board->page->watches &&
           (board->page->linked || is_here(board->page, process));
}

bool tti_board_decides(const struct tti_board *board, int process)
{
    return mark_at(board, process) != NULL && board->page->watches &&
           (board->page->decides || is_here(board->page, process));
}

bool tti_board_is_linked(const struct tti_board *board)
{
    return board != NULL && board->page != NULL && board->page->linked;
}

uint32_t tti_board_lives(const struct tti_board *board, int process)
{
    const struct mark *mark = mark_at(board, process);
    return mark == NULL ? 0 : (uint32_t)(atomic_load_explicit(&mark->ended, memory_order_acquire) >> 32);
}

/* A process that has ended more than once since was started again before its last end, after the others had asked; so
 * its first end counts. */
bool tti_board_was_lost(const struct tti_board *board, int process, uint32_t life, uint32_t ends)
{
    const struct mark *mark = mark_at(board, process);
    uint64_t ended = mark == NULL ? 0 : atomic_load_explicit(&mark->ended, memory_order_acquire);
    if (ended >> 32 <= life) return false;
    return ended >> 32 > (uint64_t)life + 1 || (uint32_t)ended <= ends;
}

bool tti_board_has_ended(const struct tti_board *board, int process, uint32_t life)
{
    if (mark_at(board, process) == NULL) return false;
    return tti_board_was_lost(board, process, life, atomic_load_explicit(&board->page->ends, memory_order_acquire));
}

static uint64_t settle_here(struct tti_board_page *page, uint32_t epoch)
{
    uint64_t mine = (uint64_t)(epoch + 1) << 32 | atomic_load_explicit(&page->ends, memory_order_acquire);
    uint64_t settled = atomic_load_explicit(&page->lost, memory_order_acquire);
    while (settled >> 32 < epoch + 1 && !atomic_compare_exchange_weak_explicit(
                                            &page->lost, &settled, mine, memory_order_acq_rel, memory_order_acquire)) {}
    return settled >> 32 < epoch + 1 ? mine : settled;
}

/* Asks the launchers once for each epoch, and gives what they have settled so far. */
static uint64_t settle_everywhere(struct tti_board_page *page, uint32_t epoch)
{
    uint32_t asked = atomic_load_explicit(&page->asked, memory_order_relaxed);
    uint64_t settled = atomic_load_explicit(&page->lost, memory_order_acquire);
    if (settled >> 32 > epoch) return settled;
    while (asked <= epoch && !atomic_compare_exchange_weak_explicit(&page->asked, &asked, epoch + 1,
                                                                    memory_order_release, memory_order_relaxed)) {}
    if (asked <= epoch) (void)kill((pid_t)page->keeper, SIGUSR1);
    return settled;
}

tutti_status tti_board_settle(const char *name, const char *job, uint32_t epoch, uint32_t *ends)
{
    struct tti_board board;
    struct tti_board_page *page = tti_board_open_page(&board, name, job);
    if (page == NULL) return TUTTI_ERR_EPOCH;
    uint64_t settled = page->linked ? settle_everywhere(page, epoch) : settle_here(page, epoch);
    *ends = (uint32_t)settled;
    tti_board_close(&board);
    if (settled >> 32 <= epoch) return TUTTI_IN_PROGRESS;
    return settled >> 32 == epoch + 1 ? TUTTI_OK : TUTTI_ERR_EPOCH;
}

int tti_board_size(const struct tti_board *board)
{
    return board == NULL || board->page == NULL ? 0 : size_of(board->page);
}

bool tti_board_grows(const struct tti_board *board)
{
    return board != NULL && board->page != NULL && board->page->grows;
}

int tti_board_restarts(const struct tti_board *board)
{
    return board == NULL || board->page == NULL ? 0 : board->page->restarts_most;
}

uint32_t tti_board_generation(const struct tti_board *board)
{
    if (board == NULL || board->page == NULL) return 0;
    return atomic_load_explicit(&board->page->generation, memory_order_acquire);
}

uint32_t tti_board_epochs(const struct tti_board *board)
{
    if (board == NULL || board->page == NULL) return 0;
    return atomic_load_explicit(&board->page->formed, memory_order_relaxed);
}

bool tti_board_excluded(const struct tti_board *board)
{
    return board != NULL && board->page != NULL &&
           atomic_load_explicit(&board->page->excluded, memory_order_acquire) != 0;
}

void tti_board_master(const struct tti_board *board, char *host, size_t bytes)
{
    if (tti_board_generation(board) == 0 || board->page->master[0] == '\0') return;
    snprintf(host, bytes, "%.*s", (int)sizeof board->page->master, board->page->master);
}

bool tti_board_moved(const struct tti_board *board)
{
    return board != NULL && (tti_board_generation(board) != board->generation || tti_board_size(board) != board->size);
}

void tti_board_close(struct tti_board *board)
{
    if (board->page != NULL) (void)munmap((void *)(uintptr_t)board->page, board->bytes);
    board->page = NULL;
}

int tti_board_ended(const struct tti_board *board, int at)
{
    const struct tti_board_page *page = board == NULL ? NULL : board->page;
    if (page == NULL || at >= atomic_load_explicit(&page->noted, memory_order_acquire)) return -1;
    return page->notes[at].process;
}

tutti_status tti_board_blame(const struct tti_board *board, int at, tutti_error *error)
{
    const struct tti_board_page *page = board->page;
    const struct note *note = &page->notes[at];
    int each = board->ranks_each, first = note->process * each;
    bool killed = WIFSIGNALED(note->status);
    error->peer = first;
    if (page->restarts_most > 0 && tti_board_epochs(board) > 0)
        return tti_error_set(error, TUTTI_ERR_JOIN, 0,
                             "%s (process %d) of job %.128s %s %d and is not started again: %s",
                             tti_ranks_name(first, each).text, note->pid, page->job,
                             killed ? "was killed by signal" : "ended with status",
                             killed ? WTERMSIG(note->status) : WEXITSTATUS(note->status),
                             note->status == 0 ? "who ends with status 0 has done its work"
                                               : "the launcher ends the job (see its words, and --max-restarts)");
    return tti_error_set(error, TUTTI_ERR_JOIN, 0,
                         "%s (process %d) %s %d before joining job %.128s, which needs all of its %d ranks; see what "
                         "it did instead, or start fewer ranks",
                         tti_ranks_name(first, each).text, note->pid,
                         killed ? "was killed by signal" : "ended with status",
                         killed ? WTERMSIG(note->status) : WEXITSTATUS(note->status), page->job, size_of(page) * each);
}

tutti_status tti_board_go_on(const struct tti_board *board, tutti_error *error)
{
    if (board != NULL && board->attempt != 0) return tti_attempt_check(board, error);
    if (tti_board_excluded(board))
        return tti_error_set(
            error, TUTTI_ERR_EXCLUDED, 0,
            "the launcher of job %.128s has not heard this host for too long, and the others may go on "
            "without it: end this process",
            board->page->job);
    if (tti_board_moved(board))
        return tti_error_set(error, TUTTI_ERR_JOIN, 0,
                             "a process of job %.128s was started again, or taken in, meanwhile", board->page->job);
    return TUTTI_OK;
}

tutti_status tti_board_check(const struct tti_board *board, tutti_error *error)
{
    TTI_TRY(tti_board_go_on(board, error));
    return tti_board_ended(board, 0) < 0 ? TUTTI_OK : tti_board_blame(board, 0, error);
}

int tti_board_poll_ms(const struct tti_board *board, int poll_ms)
{
    return board != NULL && board->page != NULL && (poll_ms < 0 || poll_ms > TTI_BOARD_MS) ? TTI_BOARD_MS : poll_ms;
}
