/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <tutti/experimental.h>

const char *const tti_log_level_names[TTI_LOG_LEVELS] = {"quiet", "error", "warn", "info", "debug"};

static atomic_int current_level = TUTTI_WARN;
static pthread_mutex_t sink_lock = PTHREAD_MUTEX_INITIALIZER;
static tutti_log_callback *sink;
static void *sink_context;

void tutti_log_to(tutti_log_callback *callback, void *context)
{
    pthread_mutex_lock(&sink_lock);
    sink = callback;
    sink_context = context;
    pthread_mutex_unlock(&sink_lock);
}

void tutti_log_set_level(tutti_log_level level)
{
    atomic_store_explicit(&current_level, (int)level, memory_order_relaxed);
}

bool tti_log_set_level_name(const char *name)
{
    for (int i = 0; i < TTI_LOG_LEVELS; i++) {
        if (strcmp(name, tti_log_level_names[i]) != 0) continue;
        tutti_log_set_level((tutti_log_level)i);
        return true;
    }
    return false;
}

void tti_log(tutti_log_level level, const char *format, ...)
{
    if ((int)level > atomic_load_explicit(&current_level, memory_order_relaxed)) return;
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    tutti_text_printable(line);
    pthread_mutex_lock(&sink_lock);
    if (sink != NULL)
        sink(sink_context, level, line);
    else
        fprintf(stderr, "tutti %s: %s\n", tti_log_level_names[level], line);
    pthread_mutex_unlock(&sink_lock);
}
