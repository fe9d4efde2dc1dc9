/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz: runs=40000 */
/* What people write: values of options, files of switch-over sizes, keys, addresses and port ranges, tables of numbers. Any
 * text is taken or refused with a sentence, and what is taken lies in its range. The first byte chooses. */
#include "base/key.h"
#include "base/options.h"
#include "train/data.h"
#include "transport/socket.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void must(bool holds)
{
    if (!holds) abort();
}

static void read_values(const char *text)
{
    size_t count;
    tutti_error error;
    const tutti_option_row *rows = tutti_option_rows(&count);
    const char *names[64];
    for (size_t i = 0; i < count && i < 64; i++) {
        int64_t number = rows[i].low;
        error.text[0] = '\0';
        names[i] = rows[i].name;
        tutti_status status = tutti_option_parse(&rows[i], text, &number, &error);
        must(status == TUTTI_OK || error.text[0] != '\0');
        if (rows[i].kind != TUTTI_OPTION_TEXT) must(number >= rows[i].low && number <= rows[i].high);
    }
    (void)tutti_nearest(text, names, count < 64 ? count : 64);
}

/* The path of a file that holds this. */
static void write_file(const uint8_t *data, size_t bytes, char *path, size_t path_bytes)
{
    static int fd = -1;
    if (fd < 0) fd = memfd_create("fuzz", MFD_CLOEXEC);
    must(fd >= 0 && ftruncate(fd, 0) == 0 && pwrite(fd, data, bytes, 0) == (ssize_t)bytes);
    snprintf(path, path_bytes, "/proc/self/fd/%d", fd);
}

static void read_tuning(const char *path)
{
    tutti_tuning tuning;
    tutti_error error = {0};
    tti_tuning_defaults(&tuning);
    must(tti_tuning_read(path, &tuning, &error) == TUTTI_OK || error.text[0] != '\0');
}

static void read_table(const char *path)
{
    struct tti_csv table;
    tutti_error error = {0};
    tutti_status status = tti_csv_read(path, &table, &error);
    must(status == TUTTI_OK || (error.status == status && error.text[0] != '\0' && table.cells == NULL));
    if (status != TUTTI_OK) return;
    must(table.rows > 0 && table.columns > 1);
    for (size_t i = 0; i < table.rows * table.columns; i++) must(table.cells[i] - table.cells[i] == 0); /* finite */
    free(table.cells);
}

static void read_addresses(char *text)
{
    struct tti_address_list list;
    tutti_error error = {0};
    uint16_t low, high;
    tutti_status status = tti_ports_parse(text, &low, &high, &error);
    must(status == TUTTI_OK ? low <= high : error.text[0] != '\0');
    for (char *c = text; *c != '\0'; c++) /* numbers only: names would be asked for elsewhere */
        if (strchr("0123456789.:[],", *c) == NULL) *c = "0123456789.:[],"[(unsigned char)*c % 15];
    status = tti_addresses_of(text, &list, &error);
    must(status == TUTTI_OK ? list.count > 0 : error.text[0] != '\0');
}

static void read_key(const char *text)
{
    tutti_options options = {.key_file = ""};
    struct tti_key key;
    tutti_error error = {0};
    bool found;
    setenv("TUTTI_KEY", text, 1);
    must(tti_key_find(&options, &key, &found, &error) == TUTTI_OK || error.text[0] != '\0');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char text[4097], path[64];
    if (bytes < 1 || bytes > 4096) return 0;
    memcpy(text, data + 1, bytes - 1);
    text[bytes - 1] = '\0';
    write_file(data + 1, bytes - 1, path, sizeof path);
    switch (data[0] % 5) {
    case 0: read_values(text); break;
    case 1: read_tuning(path); break;
    case 2: read_table(path); break;
    case 3: read_addresses(text); break;
    default: read_key(text);
    }
    return 0;
}
