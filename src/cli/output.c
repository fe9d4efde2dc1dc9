/* SPDX-License-Identifier: Apache-2.0
 *
 * The ranks' output. Each stream (a rank's stdout or stderr) is cut into lines, and whole lines, with their prefix, are
 * queued on one of two sinks, the launcher's stdout and stderr.
 *
 * The launcher must never block on a reader that has stopped reading: otherwise it could not act on Ctrl-C. So sinks
 * are written only when poll says so, at most PIPE_BUF bytes at a time (what a pipe that is ready takes without
 * blocking), and while a sink's queue is long its streams are not read: the ranks wait, as they would for a terminal of
 * their own.
 */
#include "cli/cli.h"
#include "cli/cli_run.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    LINE_BYTES = 32768,    /* a longer line is printed as several */
    CHUNK_BYTES = 65536,   /* one read */
    QUEUE_BYTES = 262144,  /* streams are not read while their sink has more than this queued */
    DRAIN_BYTES = 1048576, /* most that is read from one stream at its rank's end: the largest pipe */
    PREFIX_BYTES = 16,
    LINK = 2,
    SINKS = 3
};

struct sink {
    int fd;
    const char *name;
    char *data; /* [room]; bytes start .. start + used are queued */
    size_t start, used, room;
    bool closed; /* after an error: more output is dropped */
};

struct stream {
    int fd;  /* -1: ended */
    int log; /* -1: none */
    int rank;
    struct sink *sink;
    char *line; /* [LINE_BYTES] */
    size_t used;
    char name[PREFIX_BYTES / 2]; /* "": its rank's number */
};

struct output {
    struct sink sinks[3];    /* stdout, stderr, a connection to another launcher */
    struct sink *reports;    /* the one that reports go to */
    bool same_file;          /* both sinks are one file: a line must be finished before the other sink goes on */
    struct sink *unfinished; /* the sink whose last write ended within a line */
    struct stream *streams;  /* [2 * size]: rank r's stdout at 2r, stderr at 2r + 1 */
    size_t stream_count;     /* 0: the ranks' output does not pass through the launcher */
    char *lines;             /* [stream_count * LINE_BYTES] */
    int prefix_width;        /* digits of a rank; 0: no prefix */
    int first;               /* rank of the first two streams */
    output_report *take_report;
    void *report_context;
    char log_dir[PATH_MAX];
    int blame; /* exit status if it cannot be opened */
    int error;
    const char *error_target;
};

static void note_error(struct output *output, int error, const char *target)
{
    if (output->error != 0) return;
    output->error = error;
    output->error_target = target;
}

int output_error(const struct output *output, const char **target)
{
    *target = output->error_target;
    return output->error;
}

/* ---- Sinks ----------------------------------------------------------------------------------------------------- */

static bool sink_reserve(struct sink *sink, size_t bytes)
{
    if (sink->start > 0) {
        memmove(sink->data, sink->data + sink->start, sink->used);
        sink->start = 0;
    }
    if (sink->used + bytes <= sink->room) return true;
    size_t room = 2 * (sink->used + bytes);
    char *data = realloc(sink->data, room);
    if (data == NULL) return false;
    sink->data = data;
    sink->room = room;
    return true;
}

static void sink_line(struct output *output, struct sink *sink, const char *prefix, const char *line, size_t length)
{
    size_t before = strlen(prefix), bytes = before + length + 1;
    if (sink->closed) return;
    if (sink->start + sink->used + bytes > sink->room && !sink_reserve(sink, bytes)) {
        note_error(output, ENOMEM, sink->name);
        return;
    }
    char *end = sink->data + sink->start + sink->used;
    memcpy(end, prefix, before);
    memcpy(end + before, line, length);
    end[before + length] = '\n';
    sink->used += bytes;
}

static void sink_fail(struct output *output, struct sink *sink, int error)
{
    sink->closed = true;
    sink->used = 0;
    if (output->unfinished == sink) output->unfinished = NULL;
    if (sink != &output->sinks[LINK])
        note_error(output, error, sink->name); /* the end of the link is seen by reading */
}

/* Returns the bytes of the next write: up to PIPE_BUF, ending with a line if one ends there. */
static size_t next_write(const struct sink *sink)
{
    size_t bytes = sink->used < PIPE_BUF ? sink->used : PIPE_BUF;
    const char *from = sink->data + sink->start, *newline = memrchr(from, '\n', bytes);
    return newline == NULL ? bytes : (size_t)(newline - from) + 1;
}

static bool ready(int fd)
{
    struct pollfd poll_out = {fd, POLLOUT, 0};
    return poll(&poll_out, 1, 0) > 0;
}

static bool must_wait(const struct output *output, const struct sink *sink)
{
    return output->same_file && output->unfinished != NULL && output->unfinished != sink && sink->fd <= STDERR_FILENO;
}

/* Writes as much as possible without blocking. */
static void sink_flush(struct output *output, struct sink *sink)
{
    while (sink->used > 0 && !must_wait(output, sink) && ready(sink->fd)) {
        size_t bytes = next_write(sink);
        ssize_t written = write(sink->fd, sink->data + sink->start, bytes);
        if (written < 0 && (errno == EINTR || errno == EAGAIN)) return;
        if (written < 0) {
            sink_fail(output, sink, errno);
            return;
        }
        bool whole = written == 0 || sink->data[sink->start + (size_t)written - 1] == '\n';
        if (sink != &output->sinks[LINK]) output->unfinished = whole ? NULL : sink;
        sink->start += (size_t)written;
        sink->used -= (size_t)written;
        if (sink->used == 0) sink->start = 0;
    }
}

static void flush(struct output *output)
{
    for (int i = 0; i < SINKS; i++) sink_flush(output, &output->sinks[i]);
    sink_flush(output, &output->sinks[0]); /* it may have waited for the end of the other's line */
}

bool output_pending(const struct output *output)
{
    return output->sinks[0].used > 0 || output->sinks[1].used > 0;
}

void output_say(struct output *output, const char *format, ...)
{
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    (void)tutti_text_printable(line);
    sink_line(output, &output->sinks[1], "tutti run: ", line, strlen(line));
}

/* ---- Other launchers ------------------------------------------------------------------------------------------- */

void output_on_report(struct output *output, output_report *take_one, void *context)
{
    output->take_report = take_one;
    output->report_context = context;
}

void output_write_report(struct output *output, const struct remote_report *report)
{
    char line[REPORT_TEXT + 8];
    if (report->event == REMOTE_ROW)
        (void)snprintf(line, sizeof line, "%crow %.*s", REMOTE_MARK, REPORT_TEXT - 8, report->text);
    else
        hosts_write_report(report, line, sizeof line);
    sink_line(output, output->reports, "", line, strlen(line));
}

void output_end_reports(struct output *output)
{
    enum { ROUNDS = 20, WAIT_MS = 100 };
    struct sink *sink = output->reports;
    for (int i = 0; i < ROUNDS && sink == &output->sinks[LINK] && sink->used > 0; i++) {
        struct pollfd polled = {sink->fd, POLLOUT, 0};
        (void)poll(&polled, 1, WAIT_MS);
        sink_flush(output, sink);
    }
}

/* ---- Streams --------------------------------------------------------------------------------------------------- */

static void emit(struct output *output, struct stream *stream)
{
    char prefix[PREFIX_BYTES] = "";
    struct remote_report report;
    if (output->take_report != NULL && hosts_read_report(stream->line, stream->used, &report)) {
        stream->used = 0;
        output->take_report(output->report_context, stream->rank, &report);
        return;
    }
    if (output->prefix_width > 0 && stream->name[0] != '\0') {
        (void)snprintf(prefix, sizeof prefix, "[%*s] ", output->prefix_width, stream->name);
    } else if (output->prefix_width > 0) {
        (void)snprintf(prefix, sizeof prefix, "[%*d] ", output->prefix_width, output->first + stream->rank);
    }
    sink_line(output, stream->sink, prefix, stream->line, stream->used);
    stream->used = 0;
}

/* Splits bytes into lines. A line that fills the buffer is printed when more of it comes. */
static void feed(struct output *output, struct stream *stream, const char *data, size_t count)
{
    while (count > 0) {
        const char *newline = memchr(data, '\n', count);
        size_t part = newline != NULL ? (size_t)(newline - data) : count, room = LINE_BYTES - stream->used;
        if (part > room) part = room;
        memcpy(stream->line + stream->used, data, part);
        stream->used += part;
        data += part;
        count -= part;
        if (count == 0) break;
        if (*data == '\n') {
            data++;
            count--;
        }
        emit(output, stream);
    }
}

static void write_log(struct output *output, struct stream *stream, const char *data, size_t count)
{
    while (count > 0 && stream->log >= 0) {
        ssize_t written = write(stream->log, data, count);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) {
            note_error(output, errno, output->log_dir);
            (void)close(stream->log);
            stream->log = -1;
            return;
        }
        data += written;
        count -= (size_t)written;
    }
}

/* Reads once. Returns false if nothing came. */
static bool take(struct output *output, struct stream *stream)
{
    static char chunk[CHUNK_BYTES];
    if (stream->fd < 0) return false;
    ssize_t count = read(stream->fd, chunk, sizeof chunk);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (count <= 0) {
        if (stream->used > 0) emit(output, stream);
        (void)close(stream->fd);
        stream->fd = -1;
        return false;
    }
    write_log(output, stream, chunk, (size_t)count);
    feed(output, stream, chunk, (size_t)count);
    return true;
}

static void drain(struct output *output, struct stream *stream)
{
    for (int i = 0; i < DRAIN_BYTES / CHUNK_BYTES && take(output, stream); i++) continue;
}

void output_name_rank(struct output *output, int rank, const char *name)
{
    if (output->stream_count == 0) return;
    for (int i = 2 * rank; i < 2 * rank + 2; i++)
        (void)snprintf(output->streams[i].name, sizeof output->streams[i].name, "%s", name);
}

void output_drain_rank(struct output *output, int rank)
{
    if (2 * (size_t)rank >= output->stream_count) return; /* it writes elsewhere, or has joined later */
    drain(output, &output->streams[2 * rank]);
    drain(output, &output->streams[2 * rank + 1]);
}

void output_finish(struct output *output)
{
    for (size_t i = 0; i < output->stream_count; i++) {
        struct stream *stream = &output->streams[i];
        drain(output, stream);
        if (stream->used > 0) emit(output, stream);
    }
    flush(output);
}

/* ---- Poll ------------------------------------------------------------------------------------------------------ */

size_t output_poll_room(const struct output *output)
{
    return SINKS + output->stream_count;
}

size_t output_poll(struct output *output, struct pollfd *polls)
{
    size_t count = 0;
    flush(output);
    for (int i = 0; i < SINKS; i++) {
        const struct sink *sink = &output->sinks[i];
        if (sink->used > 0 && !must_wait(output, sink)) polls[count++] = (struct pollfd){sink->fd, POLLOUT, 0};
    }
    for (size_t i = 0; i < output->stream_count; i++) {
        const struct stream *stream = &output->streams[i];
        if (stream->fd < 0 || stream->sink->used > QUEUE_BYTES) continue;
        polls[count++] = (struct pollfd){stream->fd, POLLIN, 0};
    }
    return count;
}

void output_serve(struct output *output, const struct pollfd *polls, size_t count)
{
    size_t i = 0; /* both lists are in the order of the streams */
    for (size_t p = 0; p < count; p++) {
        if (polls[p].events != POLLIN || polls[p].revents == 0) continue;
        while (i < output->stream_count && output->streams[i].fd != polls[p].fd) i++;
        if (i < output->stream_count) (void)take(output, &output->streams[i]);
    }
    flush(output);
}

/* ---- Opening and closing --------------------------------------------------------------------------------------- */

static void close_end(int *fd)
{
    if (*fd >= 0) (void)close(*fd);
    *fd = -1;
}

void output_started(struct launch *launch)
{
    for (int rank = 0; rank < launch->size; rank++) {
        close_end(&launch->ranks[rank].out);
        close_end(&launch->ranks[rank].err);
    }
}

void output_close(struct output *output)
{
    if (output == NULL) return;
    for (size_t i = 0; i < output->stream_count; i++) {
        close_end(&output->streams[i].fd);
        close_end(&output->streams[i].log);
    }
    free(output->sinks[0].data);
    free(output->sinks[1].data);
    free(output->sinks[LINK].data);
    free(output->streams);
    free(output->lines);
    free(output);
}

static int open_log(struct output *output, int rank, const char *suffix)
{
    char path[PATH_MAX + 64];
    (void)snprintf(path, sizeof path, "%s/rank-%d.%s", output->log_dir, output->first + rank, suffix);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) output->blame = cli_blame_path("run", "cannot open", path);
    return fd;
}

static bool make_log_dir(struct output *output, const char *path)
{
    if (mkdir(path, 0777) != 0 && errno != EEXIST) {
        output->blame = cli_blame_path("run", "cannot make the folder", path);
        return false;
    }
    (void)snprintf(output->log_dir, sizeof output->log_dir, "%s", path);
    return true;
}

/* Makes a pipe for stream i: the launcher reads without blocking, the rank writes as to any pipe. */
static bool open_stream(struct output *output, size_t i, int *rank_end)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        (void)cli_fail("run", "cannot make a pipe for a rank's output: %s", strerror(errno));
        return false;
    }
    struct stream *stream = &output->streams[i];
    stream->fd = ends[0];
    *rank_end = ends[1];
    if (fcntl(stream->fd, F_SETFL, O_NONBLOCK) == 0) return true;
    (void)cli_fail("run", "cannot set up a pipe: %s", strerror(errno));
    return false;
}

static bool open_streams(struct output *output, struct launch *launch, bool logs)
{
    size_t count = 2 * (size_t)launch->size;
    output->streams = calloc(count, sizeof *output->streams);
    output->lines = malloc(count * LINE_BYTES); /* pages are committed when lines need them */
    if (output->streams == NULL || output->lines == NULL) {
        (void)cli_fail("run", "out of memory");
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        int rank = (int)(i / 2);
        output->streams[i] = (struct stream){-1, -1, rank, &output->sinks[i % 2], output->lines + i * LINE_BYTES,
                                             0,  ""};
    }
    output->stream_count = count;
    for (size_t i = 0; i < count; i++) {
        struct launch_rank *ends = &launch->ranks[i / 2];
        if (!open_stream(output, i, i % 2 == 0 ? &ends->out : &ends->err)) return false;
        if (!logs) continue;
        output->streams[i].log = open_log(output, (int)(i / 2), i % 2 == 0 ? "out" : "err");
        if (output->streams[i].log < 0) return false;
    }
    return true;
}

/* Opens log files for the ranks, which write to them directly without --tee. */
static bool open_files(struct output *output, struct launch *launch)
{
    for (int rank = 0; rank < launch->size; rank++) {
        launch->ranks[rank].out = open_log(output, rank, "out");
        launch->ranks[rank].err = open_log(output, rank, "err");
        if (launch->ranks[rank].out < 0 || launch->ranks[rank].err < 0) return false;
    }
    return true;
}

static bool open_all(struct output *output, const struct run_values *values, struct launch *launch)
{
    bool logs = values->log_dir[0] != '\0';
    if (launch->hosts != NULL) return open_streams(output, launch, false); /* logs are written on the ranks' hosts */
    if (logs && !make_log_dir(output, values->log_dir)) return false;
    if (logs && values->tee == 0) return open_files(output, launch);
    bool alone = launch->place.world == 1 && !logs; /* it keeps the terminal, if there is one */
    return alone || open_streams(output, launch, logs);
}

static int digits(int number)
{
    return snprintf(NULL, 0, "%d", number);
}

int output_open(const struct run_values *values, struct launch *launch, struct output **opened)
{
    struct output *output = calloc(1, sizeof *output);
    if (output == NULL) return cli_fail("run", "out of memory");
    output->blame = CLI_FAILED;
    *opened = output;
    struct stat out, err;
    output->sinks[0] = (struct sink){.fd = STDOUT_FILENO, .name = "stdout"};
    output->sinks[1] = (struct sink){.fd = STDERR_FILENO, .name = "stderr"};
    output->sinks[LINK] = (struct sink){.fd = launch->link, .name = "node 0", .closed = launch->link == 0};
    output->reports = launch->link != 0 ? &output->sinks[LINK] : &output->sinks[1];
    output->same_file = fstat(STDOUT_FILENO, &out) == 0 && fstat(STDERR_FILENO, &err) == 0 &&
                        out.st_dev == err.st_dev && out.st_ino == err.st_ino;
    int world = launch->place.world;
    /* lines of other hosts already have their prefix */
    bool prefix = world > 1 && values->no_prefix == 0 && launch->hosts == NULL;
    if (prefix) output->prefix_width = digits(world - 1);
    output->first = launch->place.first;
    for (int rank = 0; rank < launch->size; rank++) launch->ranks[rank] = (struct launch_rank){-1, -1};
    if (open_all(output, values, launch)) return CLI_GO_ON;
    int blame = output->blame;
    output_started(launch);
    output_close(output);
    return blame;
}
