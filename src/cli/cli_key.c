/* SPDX-License-Identifier: Apache-2.0
 *
 * tutti key: makes the file that the hosts of a job share.
 */
#include "cli/cli.h"

#include <errno.h>

static const struct cli_flag key_flags[] = {{.row = {.name = NULL}}};

static const struct cli_example key_examples[] = {
    {"tutti key ~/.tutti-key", "a new key, in a file that only you can read; copy it to the other hosts (scp -p)"},
    {"TUTTI_KEY_FILE=~/.tutti-key ./train", "a rank of a job on several hosts proves that it has the key"},
    {NULL, NULL},
};

const struct cli_page cli_key_page = {
    .usage = "tutti key FILE",
    .about =
        "Makes a new random key in FILE, which must not be there yet. Ranks on different hosts prove to each other "
        "that "
        "they have the same key before they believe anything else they hear, so that nobody else can take part in a "
        "job. Data are neither encrypted nor signed: the key keeps strangers out, not listeners.\n\n"
        "The file is found by the option key_file (TUTTI_KEY_FILE) and refused when others than its owner can read "
        "it. Jobs on one host need no key.",
    .examples = key_examples,
    .flags = key_flags,
    .operands = true,
};

int cli_key(int argc, char **argv)
{
    int first = argc, unused;
    tutti_error error;
    int status = cli_parse("key", &cli_key_page, argc, argv, &unused, &first);
    if (status != CLI_GO_ON) return status;
    if (argc - first != 1) return cli_refuse("key", "one file is made at a time; usage: %s", cli_key_page.usage);
    if (argv[first][0] == '\0') return cli_refuse("key", "the file's name is empty");
    return tutti_key_create(argv[first], &error) == TUTTI_OK ? CLI_OK : cli_blame("key", &error);
}
