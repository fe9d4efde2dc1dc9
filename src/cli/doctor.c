/* SPDX-License-Identifier: Apache-2.0
 *
 * tutti doctor: prints what it finds on this machine and in this environment, one line each, with the fix if something
 * is wrong.
 */
#include "cli/doctor.h"
#include "cli/cli.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

struct doctor_values {
    const char *json;
};

static const struct cli_flag doctor_flags[] = {
    {.row = {"json", TUTTI_OPTION_TEXT, "", 0, 0,
             "write a JSON array of what was found; - or no value: to stdout, in place of the lines"},
     .offset = offsetof(struct doctor_values, json),
     .value = "[FILE]",
     .bare = "-"},
    {.row = {.name = NULL}},
};

static const struct cli_example doctor_examples[] = {
    {"tutti doctor", "what is found here"},
    {"mpirun -n 2 tutti doctor", "what a program finds that is started in this way"},
    {NULL, NULL},
};

const struct cli_page cli_doctor_page = {
    .usage = "tutti doctor [flags]",
    .about =
        "Says what is found on this machine and in this environment, one line each: cores and memory, limits, what the "
        "system allows, network interfaces, which launcher has started this process and by which variables, which "
        "others are there but come later in the order, the job's key, libraries, the kernels that multiply matrices, "
        "and GPUs with what they make possible; and, where something is wrong, how to mend it. Two processes then try "
        "to join.\n\n"
        "Lines begin with ok; note, for what is good to know; warn, for what works, but not as well as it could; or "
        "bad, for what prevents joining. The exit status is 1 if anything is bad, else 0.",
    .examples = doctor_examples,
    .flags = doctor_flags,
};

struct entry {
    enum finding finding;
    const char *name;
    char *text, *fix;
};

struct doctor {
    struct entry *entries;
    size_t count;
    bool bad, out_of_memory;
};

static const char *const words[] = {
    [FOUND_GOOD] = "ok", [FOUND_NOTE] = "note", [FOUND_WARNING] = "warn", [FOUND_BAD] = "bad"};

void doctor_add(struct doctor *doctor, enum finding finding, const char *name, const char *fix, const char *format, ...)
{
    struct entry entry = {.finding = finding, .name = name, .fix = strdup(fix == NULL ? "" : fix)};
    va_list arguments;
    va_start(arguments, format);
    bool made = vasprintf(&entry.text, format, arguments) >= 0;
    va_end(arguments);
    struct entry *entries = realloc(doctor->entries, (doctor->count + 1) * sizeof *entries);
    doctor->out_of_memory |= !made || entry.fix == NULL || entries == NULL;
    if (entries != NULL) doctor->entries = entries;
    if (doctor->out_of_memory) return;
    (void)tutti_text_printable(entry.text); /* the text may come from libraries, files and variables */
    (void)tutti_text_printable(entry.fix);
    doctor->entries[doctor->count++] = entry;
    doctor->bad |= finding == FOUND_BAD;
}

/* ---- Printing ---------------------------------------------------------------------------------------------------- */

static void print_lines(const struct doctor *doctor)
{
    for (size_t i = 0; i < doctor->count; i++) {
        const struct entry *entry = &doctor->entries[i];
        printf("%-5s %-12s %s\n", words[entry->finding], entry->name, entry->text);
        if (entry->fix[0] != '\0') printf("%-5s %-12s fix: %s\n", "", "", entry->fix);
    }
}

static void print_string(FILE *stream, const char *text)
{
    (void)fputc('"', stream);
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            (void)fprintf(stream, "\\%c", c);
        else if (c < 0x20)
            (void)fprintf(stream, "\\u%04x", c);
        else
            (void)fputc(c, stream);
    }
    (void)fputc('"', stream);
}

static void print_json(FILE *stream, const struct doctor *doctor)
{
    (void)fprintf(stream, "[\n");
    for (size_t i = 0; i < doctor->count; i++) {
        const struct entry *entry = &doctor->entries[i];
        (void)fprintf(stream, "  {\"state\": \"%s\", \"name\": \"%s\", \"text\": ", words[entry->finding], entry->name);
        print_string(stream, entry->text);
        (void)fprintf(stream, ", \"fix\": ");
        print_string(stream, entry->fix);
        (void)fprintf(stream, i + 1 < doctor->count ? "},\n" : "}\n");
    }
    (void)fprintf(stream, "]\n");
}

/* Prints the lines to stdout unless the JSON goes there. Returns CLI_OK, or the status of a file that cannot be
 * written. */
static int print(const struct doctor *doctor, const char *json)
{
    if (cli_is_stdout(json)) {
        print_json(stdout, doctor);
        return CLI_OK;
    }
    print_lines(doctor);
    if (json[0] == '\0') return CLI_OK;
    FILE *file = fopen(json, "we");
    if (file == NULL) return cli_blame_path("doctor", "cannot write", json);
    print_json(file, doctor);
    bool bad = ferror(file) != 0;
    bad |= fclose(file) != 0;
    return bad ? cli_blame_path("doctor", "cannot write", json) : CLI_OK;
}

static void look(struct doctor *doctor)
{
    doctor_version(doctor);
    doctor_cores(doctor);
    doctor_memory(doctor);
    doctor_limits(doctor);
    doctor_kernel(doctor);
    doctor_interfaces(doctor);
    doctor_libraries(doctor);
    doctor_devices(doctor);
    doctor_options(doctor);
    doctor_launcher(doctor);
    doctor_key(doctor);
    doctor_trial(doctor);
}

int cli_doctor(int argc, char **argv)
{
    struct doctor_values values;
    struct doctor doctor = {0};
    int status = cli_parse("doctor", &cli_doctor_page, argc, argv, &values, NULL);
    if (status == CLI_GO_ON) status = cli_check_output("doctor", values.json);
    if (status != CLI_GO_ON) return status;
    look(&doctor);
    status = print(&doctor, values.json);
    for (size_t i = 0; i < doctor.count; i++) {
        free(doctor.entries[i].text);
        free(doctor.entries[i].fix);
    }
    free(doctor.entries);
    if (doctor.out_of_memory) return cli_fail("doctor", "out of memory");
    return doctor.bad ? CLI_FAILED : status;
}
