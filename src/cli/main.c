/* SPDX-License-Identifier: Apache-2.0
 *
 * tutti: the table of commands, and main.
 */
#include "cli/cli.h"

#include <string.h>

static const struct cli_command commands[] = {
    {"run", "start a program as several ranks, and end them together", cli_run, &cli_run_page},
    {"bench", "measure collectives, check their results and tune switch-over sizes", cli_bench, &cli_bench_page},
    {"train", "train a model on many ranks", cli_train, &cli_train_page},
    {"plan", "say which layout to train with, and what it needs", cli_plan, &cli_plan_page},
    {"sample", "let a trained model go on from a prompt", cli_sample, &cli_sample_page},
    {"ckpt", "list, check and compare checkpoints", cli_ckpt, &cli_ckpt_page},
    {"key", "make the key that the hosts of a job share", cli_key, &cli_key_page},
    {"sim", "predict how long collectives take on hosts that are not there", cli_sim, &cli_sim_page},
    {"pipeline", "check and draw who does what when in a pipeline", cli_pipeline, &cli_pipeline_page},
    {"faultbench", "kill ranks, and count what the others make of it", cli_faultbench, &cli_faultbench_page},
    {"top", "show what the ranks of a running job do", cli_top, &cli_top_page},
    {"doctor", "say what is found here, and how to mend what is wrong", cli_doctor, &cli_doctor_page},
};

enum { COMMAND_COUNT = sizeof commands / sizeof commands[0] };

const struct cli_command *cli_commands(size_t *count)
{
    *count = COMMAND_COUNT;
    return commands;
}

static const struct cli_command *find_command(const char *name)
{
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(commands[i].name, name) == 0) return &commands[i];
    }
    return NULL;
}

static int refuse_command(const char *word)
{
    enum { OWN = 3 };
    const char *words[COMMAND_COUNT + OWN] = {"help", "--help", "--version"};
    for (size_t i = 0; i < COMMAND_COUNT; i++) words[OWN + i] = commands[i].name;
    const char *near = tutti_nearest(word, words, COMMAND_COUNT + OWN);
    const char *what = word[0] == '-' ? "flag" : "command";
    if (near == NULL) return cli_refuse(NULL, "unknown %s '%s'; see tutti --help", what, word);
    return cli_refuse(NULL, "unknown %s '%s'; did you mean '%s'?", what, word, near);
}

static bool is_one_of(const char *word, const char *first, const char *second, const char *third)
{
    return strcmp(word, first) == 0 || strcmp(word, second) == 0 || strcmp(word, third) == 0;
}

/* Runs tutti help [COMMAND | --man | --errors | --options]. */
static int help(int argc, char **argv)
{
    if (argc > 2) return cli_refuse("help", "one command at a time: tutti help COMMAND");
    if (argc < 2 || is_one_of(argv[1], "help", "--help", "-h")) {
        cli_help_tool(stdout);
    } else if (strcmp(argv[1], "--man") == 0) {
        cli_help_man(stdout);
    } else if (strcmp(argv[1], "--errors") == 0) {
        cli_reference_errors(stdout);
    } else if (strcmp(argv[1], "--options") == 0) {
        cli_reference_options(stdout);
    } else {
        const struct cli_command *command = find_command(argv[1]);
        if (command == NULL) return refuse_command(argv[1]);
        cli_help_command(command, stdout);
    }
    return CLI_OK;
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2) {
        cli_help_tool(stderr);
        return CLI_USAGE;
    }
    const char *word = argv[1];
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) return help(1, argv);
    if (strcmp(word, "help") == 0) return help(argc - 1, argv + 1);
    if (is_one_of(word, "--version", "-V", "version")) {
        printf("tutti %d.%d.%d\n", TUTTI_VERSION_MAJOR, TUTTI_VERSION_MINOR, TUTTI_VERSION_PATCH);
        return CLI_OK;
    }
    const struct cli_command *command = find_command(word);
    return command == NULL ? refuse_command(word) : command->run(argc - 1, argv + 1);
}

int main(int argc, char **argv)
{
    int status = dispatch(argc, argv);
    bool lost = ferror(stdout) != 0; /* an earlier flush failed */
    if (fflush(stdout) != 0 && status == CLI_OK) {
        perror("tutti: cannot write to stdout");
        status = CLI_FAILED;
    } else if (lost && status == CLI_OK) {
        status = cli_fail(NULL, "not all could be written to stdout");
    }
    return status;
}
