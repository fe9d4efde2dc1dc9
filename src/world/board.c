/* SPDX-License-Identifier: Apache-2.0
 *
 * The launcher's guard makes a memfd and keeps it; ranks open it through /proc, when they need it, and have no descriptor of
 * it that a program between launcher and rank could close.
 */
#include "world/board.h"

#include "base/alloc.h"
#include "base/memory.h"
#include "base/status.h"
#include "world/names.h"
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define BOARD_MAGIC 0x6472616f62747475u

struct note {
    int32_t process, pid, status; /* as waitpid gives it */
};

struct tti_board_page {
    uint64_t magic;
    char job[256];
    int32_t first, count, size; /* processes of this host, and of the job */
    _Atomic int32_t noted;      /* of them; only the launcher's guard writes */
    struct note notes[];        /* [count], in the order in which they ended; behind them, see follows_of: [count] */
};

static size_t page_bytes(int count)
{
    return sizeof(struct tti_board_page) + (size_t)count * (sizeof(struct note) + 1);
}

/* Which processes of this host were told that another is the cause, by themselves. */
static _Atomic unsigned char *follows_of(struct tti_board_page *page, int process)
{
    if (process < page->first || process >= page->first + page->count) return NULL;
    return (_Atomic unsigned char *)(void *)&page->notes[page->count] + (process - page->first);
}

/* ---- The launcher's side --------------------------------------------------------------------------------------- */

struct tutti_board {
    struct tti_mapping mapping;
};

static struct tti_board_page *page_of(tutti_board *board)
{
    return (struct tti_board_page *)(void *)board->mapping.base;
}

tutti_status tutti_board_create(const char *job, int first, int count, int size, tutti_board **board,
                                tutti_error *error)
{
    if (board == NULL) return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "the place for the board is NULL");
    *board = NULL;
    if (job == NULL || strlen(job) >= sizeof((struct tti_board_page *)NULL)->job || first < 0 || count < 1 ||
        first > size - count)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                             "a board of processes %d to %d - 1 of %d of the job \"%.64s\"", first, first + count, size,
                             job == NULL ? "" : job);
    tutti_board *made = tti_calloc(1, sizeof *made);
    if (made == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for a board");
    tutti_status status = tti_mapping_create(&made->mapping, page_bytes(count), true, true, error);
    if (status != TUTTI_OK) {
        tti_free(made);
        return status;
    }
    struct tti_board_page *page = page_of(made);
    strcpy(page->job, job);
    page->first = first;
    page->count = count;
    page->size = size;
    page->magic = BOARD_MAGIC;
    *board = made;
    return TUTTI_OK;
}

void tutti_board_name(const tutti_board *board, char *text, size_t bytes)
{
    snprintf(text, bytes, "/proc/%d/fd/%d", (int)getpid(), board->mapping.fd);
}

void tutti_board_note(tutti_board *board, int process, int pid, int wait_status)
{
    struct tti_board_page *page = page_of(board);
    int noted = atomic_load_explicit(&page->noted, memory_order_relaxed);
    if (process < page->first || process >= page->first + page->count || noted == page->count) return;
    page->notes[noted] = (struct note){process, pid, wait_status};
    atomic_store_explicit(&page->noted, noted + 1, memory_order_release);
}

bool tutti_board_follows(const tutti_board *board, int process)
{
    _Atomic unsigned char *follows = follows_of((struct tti_board_page *)(void *)board->mapping.base, process);
    return follows != NULL && atomic_load_explicit(follows, memory_order_relaxed) != 0;
}

void tutti_board_free(tutti_board *board)
{
    if (board == NULL) return;
    tti_mapping_destroy(&board->mapping);
    tti_free(board);
}

/* ---- The ranks' side ------------------------------------------------------------------------------------------- */

static bool is_of(const struct tti_board *board, const char *job, int process_count)
{
    const struct tti_board_page *page = board->page;
    return page->magic == BOARD_MAGIC && strncmp(page->job, job, sizeof page->job) == 0 &&
           page->size == process_count && page->count > 0 && page_bytes(page->count) <= board->bytes;
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
        if (base != MAP_FAILED) *board = (struct tti_board){base, bytes, board->ranks_each};
    }
    (void)close(fd);
}

void tti_board_open(struct tti_board *board, const char *name, const char *job, int process_count, int ranks_each)
{
    *board = (struct tti_board){.ranks_each = ranks_each};
    map(board, name, false);
    if (board->page != NULL && !is_of(board, job, process_count)) tti_board_close(board);
}

void tti_board_follow(const char *name, const char *job, int process)
{
    struct tti_board board = {0};
    map(&board, name, true);
    if (board.page == NULL) return;
    bool ours = is_of(&board, job, board.page->size);
    _Atomic unsigned char *follows = ours ? follows_of((struct tti_board_page *)(uintptr_t)board.page, process) : NULL;
    if (follows != NULL) atomic_store_explicit(follows, 1, memory_order_relaxed);
    tti_board_close(&board);
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
    return tti_error_set(error, TUTTI_ERR_JOIN, 0,
                         "%s (process %d) %s %d before joining job %.128s, which needs all of its %d ranks; see what "
                         "it did instead, or start fewer ranks",
                         tti_ranks_name(first, each).text, note->pid,
                         killed ? "was killed by signal" : "ended with status",
                         killed ? WTERMSIG(note->status) : WEXITSTATUS(note->status), page->job, page->size * each);
}

tutti_status tti_board_check(const struct tti_board *board, tutti_error *error)
{
    return tti_board_ended(board, 0) < 0 ? TUTTI_OK : tti_board_blame(board, 0, error);
}

int tti_board_poll_ms(const struct tti_board *board, int poll_ms)
{
    return board != NULL && board->page != NULL && (poll_ms < 0 || poll_ms > TTI_BOARD_MS) ? TTI_BOARD_MS : poll_ms;
}
