/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks options: before joining, and in launchers before they start anything.
 */
#include "base/key.h"
#include "base/log.h"
#include "base/options.h"
#include "base/status.h"
#include "collective/api/api.h"
#include "collective/comm/trace.h"
#include "collective/stream/streams.h"
#include "device/open.h"
#include "transport/socket.h"
#include "world/cluster.h"
#include "world/launch.h"
#include <string.h>

/* Checks options that may have been filled in by hand: numbers must be within the range of their row, and texts must be
 * set. */
static tutti_status check_ranges(const tutti_options *options, tutti_error *error)
{
#define CHECK_NUMBER(name, low, high)                                                                                  \
    if (options->name < (low) || options->name > (high))                                                               \
        return tti_error_set(error, TUTTI_ERR_OPTION, 0, "the option " #name " is %lld; it goes from %lld to %lld",    \
                             (long long)options->name, (long long)(low), (long long)(high));
#define CHECK_INT(name, low, high) CHECK_NUMBER(name, low, high)
#define CHECK_MS(name, low, high) CHECK_NUMBER(name, low, high)
#define CHECK_BYTES(name, low, high) CHECK_NUMBER(name, low, high)
#define CHECK_BOOL(name, low, high)
#define CHECK_TEXT(name, low, high)                                                                                    \
    if (options->name == NULL)                                                                                         \
        return tti_error_set(error, TUTTI_ERR_OPTION, 0, "the option " #name " is NULL; use tutti_options_init");
#define CHECK_OPTION(name, kind, initial, low, high, help) CHECK_##kind(name, low, high)
    TUTTI_OPTION_LIST(CHECK_OPTION)
#undef CHECK_OPTION
    return TUTTI_OK;
}

static tutti_status check_words(const tutti_options *options, tutti_error *error)
{
    if (strcmp(options->device, "auto") != 0 && tti_device_check_name(options->device, error) != TUTTI_OK)
        return tti_error_set(error, TUTTI_ERR_OPTION, 0,
                             "TUTTI_DEVICE: \"%.32s\" is no device; give auto, host, cuda or cuda:N", options->device);
    TTI_TRY(tti_option_word("TUTTI_DEVICE_PROVIDER", options->device_provider, tti_streams_words, TTI_STREAMS_WORDS,
                            error));
    TTI_TRY(tti_option_word("TUTTI_LOG", options->log, tti_log_level_names, TTI_LOG_LEVELS, error));
    TTI_TRY(tti_cluster_check_transport(options->transport, error));
    return tti_launcher_check(options->launcher, error);
}

tutti_status tti_options_check(const tutti_options *options, tutti_error *error)
{
    if (options->struct_size != sizeof *options) /* none of its fields can be relied on */
        return tti_error_set(error, TUTTI_ERR_OPTION, 0,
                             "struct_size of the options is %zu, not %zu; set them up with tutti_options_init",
                             options->struct_size, sizeof *options);
    TTI_TRY(check_ranges(options, error));
    return check_words(options, error);
}

static tutti_status check_network(const tutti_options *options, tutti_error *error)
{
    struct tti_address_list list;
    struct tti_key key;
    uint16_t low, high;
    bool found;
    TTI_TRY(tti_ports_parse(options->ports, &low, &high, error));
    TTI_TRY(tti_addresses_here(options->interface, &list, error));
    tutti_status status = tti_key_find(options, &key, &found, error);
    tti_key_forget(&key);
    return status;
}

static tutti_status check_files(const tutti_options *options, tutti_error *error)
{
    char trace[TTI_TRACE_PATH];
    tutti_tuning tuning;
    TTI_TRY(tti_trace_prepare(options->trace, trace, error));
    return tti_tuning_load(options->tuning, &tuning, error);
}

tutti_status tutti_options_check(const tutti_options *options, int hosts, tutti_error *error)
{
    if (options == NULL || hosts < 0)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "the options are NULL, or the number of hosts is negative");
    TTI_TRY(tti_options_check(options, error));
    bool network = hosts > 1 || options->host_processes > 0 || strcmp(options->transport, "tcp") == 0;
    if (hosts > 0 && network) TTI_TRY(check_network(options, error));
    return hosts > 0 ? check_files(options, error) : TUTTI_OK;
}
