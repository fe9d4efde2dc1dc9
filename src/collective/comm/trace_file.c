/* SPDX-License-Identifier: Apache-2.0
 *
 * A trace's file: a JSON array of events, one per line, as chrome://tracing and Perfetto read it. Every rank appends
 * its part when it frees a comm, under a lock, so that the file is whole whenever nobody holds the lock, whoever died
 * before. All processes empty it before they join, and none can write before all have joined.
 */
#include "base/clock.h"
#include "base/status.h"
#include "collective/comm/trace.h"
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOCK_NS INT64_C(10000000000)
enum { TAIL = 3, LOOK_BACK = 4096 };
static const char tail[] = "\n]\n";

/* ---- The file -------------------------------------------------------------------------------------------------- */

/* Returns the file opened and locked, or -1 with errno. Whoever holds the lock only writes, or has died. */
static int open_locked(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    int64_t until = tti_now_ns() + LOCK_NS;
    while (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK && tti_now_ns() < until) {
            poll(NULL, 0, 1);
            continue;
        }
        int why = errno == EWOULDBLOCK ? ETIMEDOUT : errno;
        close(fd);
        errno = why;
        return -1;
    }
    return fd;
}

static bool write_all(int fd, const char *text, size_t bytes, off_t at)
{
    while (bytes > 0) {
        ssize_t wrote = pwrite(fd, text, bytes, at);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) return false;
        text += wrote;
        at += wrote;
        bytes -= (size_t)wrote;
    }
    return true;
}

/* Returns where the last whole event ends: before the tail or, if its writer was killed, at the end of a whole line. */
static off_t end_of_events(int fd, off_t size)
{
    char text[LOOK_BACK];
    while (size > 0) {
        off_t from = size > LOOK_BACK ? size - LOOK_BACK : 0;
        ssize_t got = pread(fd, text, (size_t)(size - from), from);
        for (ssize_t i = got - 1; i > 0; i--) {
            if (text[i] != '\n') continue;
            if (text[i - 1] == '}') return from + i;
            if (text[i - 1] == ',' && i > 1 && text[i - 2] == '}') return from + i - 1;
        }
        size = from > 0 ? from + 2 : 0;
        if (got <= 2) return 0;
    }
    return 0;
}

/* Appends text, or leaves the file as it was if there is no room for all of it; the tail's place was there before. */
static bool append(int fd, const char *text, size_t bytes)
{
    struct stat info;
    if (fstat(fd, &info) != 0) return false;
    off_t at = end_of_events(fd, info.st_size);
    const char *before = at == 0 ? "[\n" : ",\n";
    if (write_all(fd, before, 2, at) && write_all(fd, text, bytes, at + 2) &&
        write_all(fd, tail, TAIL, at + 2 + (off_t)bytes) && ftruncate(fd, at + 2 + (off_t)bytes + TAIL) == 0)
        return true;
    int why = errno;
    bool mended = at == 0 || write_all(fd, tail, TAIL, at);
    if (ftruncate(fd, at == 0 ? 0 : at + TAIL) != 0 || !mended) why = errno;
    errno = why;
    return false;
}

/* Returns true if this process has begun the file before: a process that joins again goes on in it. */
static bool is_begun(const char *path)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static char begun[TTI_TRACE_PATH];
    pthread_mutex_lock(&lock);
    bool same = strcmp(begun, path) == 0;
    snprintf(begun, sizeof begun, "%s", path);
    pthread_mutex_unlock(&lock);
    return same;
}

static tutti_status cannot(const char *path, tutti_error *error)
{
    return tti_error_set(error, TUTTI_ERR_OPTION, errno, "the trace %.200s cannot be written; see TUTTI_TRACE", path);
}

tutti_status tti_trace_prepare(const char *path, char absolute[TTI_TRACE_PATH], tutti_error *error)
{
    absolute[0] = '\0';
    if (path[0] == '\0') return TUTTI_OK;
    int fd = open_locked(path);
    if (fd < 0) return cannot(path, error);
    char *whole = realpath(path, NULL);
    int why = whole == NULL ? errno : strlen(whole) >= TTI_TRACE_PATH ? ENAMETOOLONG : 0;
    if (why == 0) snprintf(absolute, TTI_TRACE_PATH, "%s", whole);
    if (why == 0 && !is_begun(whole) && ftruncate(fd, 0) != 0) why = errno;
    free(whole);
    close(fd);
    errno = why;
    return why == 0 ? TUTTI_OK : cannot(path, error);
}

/* ---- Events ---------------------------------------------------------------------------------------------------- */

struct writer {
    FILE *out;
    const tutti_comm *comm;
    const struct tti_trace *trace;
    struct tti_trace_moment now;
    int row;        /* the row's number in the file */
    uint64_t pairs; /* pairs of events so far */
    bool separate;  /* true if there are events before */
};

static const char *const step_names[] = {
    [TTI_STEP_ENTER] = "enter",       [TTI_STEP_PUBLISH] = "publish", [TTI_STEP_WAIT] = "wait",
    [TTI_STEP_COPY] = "copy",         [TTI_STEP_REDUCE] = "reduce",   [TTI_STEP_PREFIX] = "prefix",
    [TTI_STEP_EXCHANGE] = "exchange", [TTI_STEP_LEAVE] = "leave",     [TTI_STEP_FOLD] = "fold",
    [TTI_STEP_SEND] = "send",         [TTI_STEP_RECV] = "recv",       [TTI_STEP_AWAIT] = "await",
    [TTI_STEP_DRAIN] = "drain",       [TTI_STEP_AGAIN] = "again"};

/* Writes text in quotes. If it is no UTF-8, like a name that is cut off in the middle of a letter, bytes that are not
 * ASCII become '?'. */
static void put_text(FILE *out, const char *text)
{
    char plain[128];
    json_t *string = json_string(text);
    if (string == NULL) {
        snprintf(plain, sizeof plain, "%s", text);
        for (char *c = plain; *c != '\0'; c++) *c = (unsigned char)*c >= 0x80 ? '?' : *c;
        string = json_string(plain);
    }
    if (string == NULL || json_dumpf(string, out, JSON_ENCODE_ANY) != 0) fputs("\"\"", out);
    json_decref(string);
}

static void put_begin(struct writer *writer, const char *name, const char *phase)
{
    fprintf(writer->out, "%s{\"name\":\"%s\",\"ph\":\"%s\",\"pid\":%d,\"tid\":%d", writer->separate ? ",\n" : "", name,
            phase, writer->comm->job_rank, writer->row);
    writer->separate = true;
}

static double time_of(const struct writer *writer, uint64_t ticks)
{
    int64_t ns = tti_trace_ns(writer->trace, ticks, writer->now);
    return (double)(ns + writer->comm->world->clock_offset_ns) / 1e3;
}

static const char *name_of(const struct tti_trace_event *event)
{
    if (event->what == TTI_TRACE_STEP) return step_names[event->kind];
    return event->what == TTI_TRACE_MEETING ? "meeting" : tti_kind_name((enum tti_kind)event->kind);
}

static bool is_operation(const struct tti_trace_event *event)
{
    return event->what == TTI_TRACE_OP || event->what == TTI_TRACE_INSIDE || event->what == TTI_TRACE_ON_STREAM;
}

/* Writes "ddp: all_reduce" for a call that ddp makes itself and names "ddp: gradients". Dimensions of a mesh are the
 * caller's words: characters that would need quoting become ?; the label has them whole. */
static void inside_name(const struct tti_site *site, const char *call, char *text, size_t bytes)
{
    const char *owner = site->name[0] != '\0' ? site->name : "library"; /* if there was no room for the site */
    snprintf(text, bytes, "%.*s: %s", (int)strcspn(owner, ":"), owner, call);
    for (char *c = text; *c != '\0'; c++)
        if (*c < ' ' || *c > '~' || *c == '"' || *c == '\\') *c = '?';
}

static void put_site(FILE *out, const struct tti_site *site)
{
    char at[80];
    if (site->line > 0) {
        snprintf(at, sizeof at, "%s:%d", site->file, (int)site->line);
        fputs(",\"at\":", out);
        put_text(out, at);
    }
    if (site->name[0] == '\0') return;
    fputs(",\"label\":", out);
    put_text(out, site->name);
}

static void put_carrier(FILE *out, const struct tti_trace_event *event)
{
    enum tti_carrier carrier = (enum tti_carrier)event->carrier;
    bool own = tti_carrier_reorders(carrier, event->reduction);
    fprintf(out, ",\"provider\":\"%s\"%s", tti_carrier_names[carrier], own ? ",\"order\":\"not canonical\"" : "");
}

static void put_call(FILE *out, const struct tti_trace_event *event, const struct tti_site *site)
{
    if (event->type < TUTTI_TYPE_COUNT && is_operation(event))
        fprintf(out, ",\"count\":%llu,\"type\":\"%s\"", (unsigned long long)event->count,
                tutti_type_name((tutti_type)event->type));
    if (event->reduction < TUTTI_REDUCTION_COUNT && is_operation(event))
        fprintf(out, ",\"reduction\":\"%s\"", tutti_reduction_name((tutti_reduction)event->reduction));
    if (event->what == TTI_TRACE_ON_STREAM) put_carrier(out, event);
    if (event->status < 0) fprintf(out, ",\"status\":\"%s\"", tutti_status_name((tutti_status)event->status));
    put_site(out, site);
}

static void put_arguments(FILE *out, const struct tti_trace_event *event, const struct tti_site *sites)
{
    bool step = event->what == TTI_TRACE_STEP || event->what == TTI_TRACE_MEETING;
    fprintf(out, ",\"args\":{\"bytes\":%llu", (unsigned long long)event->bytes);
    if (step || is_operation(event)) fprintf(out, ",\"sequence\":%u", event->sequence);
    if (event->peer >= 0) fprintf(out, ",\"%s\":%d", is_operation(event) ? "root" : "peer", event->peer);
    if (!step) put_call(out, event, &sites[event->site]);
    fputs("}}", out);
}

/* Events that overlap in a row are written as pairs of events with a number that no other pair has. */
static void put_pair(struct writer *writer, const struct tti_trace_event *event, const struct tti_site *sites)
{
    static const char format[] = ",\"cat\":\"%s\",\"id\":\"%d.%d.%llu\",\"ts\":%.3f";
    const char *group = event->what == TTI_TRACE_MAIL ? "message" : "stream";
    unsigned long long number = writer->pairs++;
    put_begin(writer, name_of(event), "b");
    fprintf(writer->out, format, group, writer->comm->job_rank, writer->row, number, time_of(writer, event->begin));
    put_arguments(writer->out, event, sites);
    put_begin(writer, name_of(event), "e");
    fprintf(writer->out, format, group, writer->comm->job_rank, writer->row, number, time_of(writer, event->end));
    fputs("}", writer->out);
}

static void put_event(struct writer *writer, const struct tti_trace_event *event, const struct tti_site *sites)
{
    static const char *const groups[] = {"operation", "internal", "step", "step", "message"};
    double begin = time_of(writer, event->begin), end = time_of(writer, event->end);
    if (event->what == TTI_TRACE_MAIL || event->what == TTI_TRACE_ON_STREAM) {
        put_pair(writer, event, sites);
        return;
    }
    const bool inside = event->what == TTI_TRACE_INSIDE;
    char name[64];
    if (inside) inside_name(&sites[event->site], name_of(event), name, sizeof name);
    put_begin(writer, inside ? name : name_of(event), "X");
    fprintf(writer->out, ",\"cat\":\"%s\",\"ts\":%.3f,\"dur\":%.3f", groups[event->what], begin, end - begin);
    put_arguments(writer->out, event, sites);
}

/* Writes "world", "comm 3 of 2 ranks" or "mesh data (comm 3 of 2 ranks)"; `what` follows. */
static void put_row_name(struct writer *writer, const char *what)
{
    char number[64], name[TTI_TRACE_NAME + 96];
    const bool named = writer->trace->name[0] != '\0';
    snprintf(number, sizeof number, "comm %u of %d ranks", writer->trace->number, writer->comm->size);
    if (writer->comm->traits.is_world)
        snprintf(name, sizeof name, "world%s", what);
    else if (named)
        snprintf(name, sizeof name, "%s (%s)%s", writer->trace->name, number, what);
    else
        snprintf(name, sizeof name, "%s%s", number, what);
    put_begin(writer, "thread_name", "M");
    fputs(",\"args\":{\"name\":", writer->out);
    put_text(writer->out, name);
    fputs("}}", writer->out);
}

static void put_row(struct writer *writer, const struct tti_trace_row *row, const char *what)
{
    uint64_t kept = row->written < row->room ? row->written : row->room, dropped = row->written - kept;
    size_t first = dropped == 0 ? 0 : row->next;
    if (kept == 0) return;
    put_row_name(writer, what);
    if (dropped > 0) {
        put_begin(writer, "events dropped", "i");
        fprintf(writer->out, ",\"s\":\"t\",\"ts\":%.3f,\"args\":{\"dropped\":%llu,\"kept\":%llu}}",
                time_of(writer, row->events[first].begin), (unsigned long long)dropped, (unsigned long long)kept);
    }
    for (size_t i = 0; i < kept; i++) put_event(writer, &row->events[(first + i) % row->room], row->sites);
}

static void put_rank(struct writer *writer)
{
    int rank = writer->comm->job_rank;
    put_begin(writer, "process_name", "M");
    fprintf(writer->out, ",\"args\":{\"name\":\"rank %d\"}}", rank);
    put_begin(writer, "process_sort_index", "M");
    fprintf(writer->out, ",\"args\":{\"sort_index\":%d}}", rank);
}

static tutti_status lost(const tutti_comm *comm, int why, tutti_error *error)
{
    return tti_error_set(error, TUTTI_ERR_SYSTEM, why,
                         "what rank %d has done is missing in the trace %.200s, which could not be written",
                         comm->job_rank, comm->trace->path);
}

tutti_status tti_trace_write(const tutti_comm *comm, tutti_error *error)
{
    const struct tti_trace *trace = comm->trace;
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    struct writer writer = {.out = out, .comm = comm, .trace = trace, .now = tti_trace_moment(trace)};
    if (out == NULL) return lost(comm, errno, error);
    put_rank(&writer);
    writer.row = comm->traits.is_world ? 0 : (int)trace->number * 2 + 2;
    put_row(&writer, &trace->operations, "");
    writer.row++;
    put_row(&writer, &trace->messages, ", messages");
    bool whole = fclose(out) == 0;
    int fd = whole ? open_locked(trace->path) : -1;
    int why = fd < 0 || !append(fd, text, bytes) ? errno : 0;
    if (fd >= 0 && close(fd) != 0 && why == 0) why = errno; /* some systems tell only at close that a disk is full */
    free(text);
    return why == 0 ? TUTTI_OK : lost(comm, why, error);
}
