/* SPDX-License-Identifier: Apache-2.0
 *
 * tutti ckpt: lists, checks and compares checkpoints.
 */
#include "cli/cli.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <tutti/train.h>

static const struct cli_flag ckpt_flags[] = {{.row = {.name = NULL}}};

static const struct cli_example ckpt_examples[] = {
    {"tutti ckpt ls run", "the checkpoints in the folder run, oldest first, and which are damaged"},
    {"tutti ckpt verify run/step-00000500", "read all of it against its checksums"},
    {"tutti ckpt diff run/step-00000400 run/step-00000500", "settings, tensors and values in which two differ"},
    {NULL, NULL},
};

const struct cli_page cli_ckpt_page = {
    .usage = "tutti ckpt ls FOLDER | verify CHECKPOINT... | diff CHECKPOINT CHECKPOINT",
    .about = "Lists, checks and compares checkpoints. A checkpoint is a folder with safetensors files and index.json. "
             "The exit status is 1 when one is damaged, or for diff when they differ.",
    .examples = ckpt_examples,
    .flags = ckpt_flags,
    .operands = true,
};

enum { NOTE_BYTES = 128 };

/* Returns a note in printable form: its file may hold any bytes. */
static const char *note(const tutti_checkpoint *checkpoint, const char *name, char text[NOTE_BYTES])
{
    const char *found = tutti_checkpoint_note(checkpoint, name);
    (void)snprintf(text, NOTE_BYTES, "%s", found == NULL ? "?" : found);
    return tutti_text_printable(text);
}

struct listing {
    int count, status;
};

static void list_one(void *context, const char *path)
{
    struct listing *listing = context;
    tutti_checkpoint *checkpoint = NULL;
    tutti_error error;
    char model[NOTE_BYTES], hash[NOTE_BYTES], ranks[NOTE_BYTES];
    listing->count++;
    if (tutti_checkpoint_open(path, true, &checkpoint, &error) != TUTTI_OK) {
        printf("%s  damaged: %s\n", path, error.text);
        listing->status = CLI_FAILED;
        return;
    }
    printf("%s  %8.1f MB  %s  weights %s  ranks %s\n", path, (double)tutti_checkpoint_bytes(checkpoint) * 1e-6,
           note(checkpoint, "model", model), note(checkpoint, "weights_hash", hash),
           note(checkpoint, "layout.ranks", ranks));
    tutti_checkpoint_free(checkpoint);
}

static int list(int argc, char **argv)
{
    struct listing listing = {.status = CLI_OK};
    tutti_error error;
    if (argc != 1) return cli_refuse("ckpt", "ls takes one folder, not %d", argc);
    if (tutti_checkpoint_list(argv[0], list_one, &listing, &error) != TUTTI_OK) return cli_blame("ckpt", &error);
    if (listing.count == 0) (void)fprintf(stderr, "tutti ckpt: there is no checkpoint in %s\n", argv[0]);
    return listing.status;
}

static bool is_folder(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0 && S_ISDIR(about.st_mode);
}

/* Reports an error. A checkpoint that lacks a file is as damaged as one with a changed file, and no bad command
 * line. */
static int blame(const char *path, const tutti_error *error)
{
    if (error->system_errno == ENOENT && is_folder(path)) return cli_fail("ckpt", "%s", error->text);
    return cli_blame("ckpt", error);
}

static int verify(int argc, char **argv)
{
    int status = CLI_OK;
    if (argc < 1) return cli_refuse("ckpt", "verify needs a checkpoint");
    for (int i = 0; i < argc; i++) {
        tutti_checkpoint *checkpoint = NULL;
        tutti_error error;
        if (tutti_checkpoint_open(argv[i], true, &checkpoint, &error) != TUTTI_OK) {
            status = blame(argv[i], &error);
            continue;
        }
        printf("%s: whole, %" PRIu64 " bytes\n", tutti_checkpoint_path(checkpoint), tutti_checkpoint_bytes(checkpoint));
        tutti_checkpoint_free(checkpoint);
    }
    return status;
}

static void print_line(void *context, const char *line)
{
    printf("%s\n", line);
    *(int *)context = CLI_FAILED;
}

static int diff(int argc, char **argv)
{
    tutti_checkpoint *both[2] = {NULL, NULL};
    tutti_error error;
    int status = CLI_OK;
    if (argc != 2) return cli_refuse("ckpt", "diff takes two checkpoints");
    for (int i = 0; i < 2 && status == CLI_OK; i++)
        if (tutti_checkpoint_open(argv[i], true, &both[i], &error) != TUTTI_OK) status = blame(argv[i], &error);
    if (status == CLI_OK && tutti_checkpoint_diff(both[0], both[1], print_line, &status, &error) != TUTTI_OK)
        status = cli_blame("ckpt", &error);
    for (int i = 0; i < 2; i++) tutti_checkpoint_free(both[i]);
    return status;
}

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} actions[] = {{"ls", list}, {"verify", verify}, {"diff", diff}};

/* Parses the flags, which may come before and after an action's operands, and runs it. argv[0] is the action. */
static int act(int (*run)(int argc, char **argv), int argc, char **argv)
{
    int unused = 0, rest = 0, more = 0, end;
    int status = cli_parse("ckpt", &cli_ckpt_page, argc, argv, &unused, &rest);
    for (end = rest; end < argc && argv[end][0] != '-'; end++) continue;
    if (status == CLI_GO_ON && rest < end && end < argc)
        status = cli_parse("ckpt", &cli_ckpt_page, argc - end + 1, argv + end - 1, &unused, &more);
    return status == CLI_GO_ON ? run(argc - rest, argv + rest) : status;
}

int cli_ckpt(int argc, char **argv)
{
    const char *names[] = {"ls", "verify", "diff"};
    int unused = 0, rest = 0;
    int status = cli_parse("ckpt", &cli_ckpt_page, argc, argv, &unused, &rest);
    if (status != CLI_GO_ON) return status;
    if (rest == argc) return cli_refuse("ckpt", "nothing to do; usage: %s", cli_ckpt_page.usage);
    for (size_t i = 0; i < sizeof actions / sizeof *actions; i++)
        if (strcmp(actions[i].name, argv[rest]) == 0) return act(actions[i].run, argc - rest, argv + rest);
    const char *near = tutti_nearest(argv[rest], names, 3);
    return cli_refuse("ckpt", "'%s' is not one of ls, verify, diff%s%s", argv[rest],
                      near == NULL ? "" : "; did you mean ", near == NULL ? "" : near);
}
