/* SPDX-License-Identifier: Apache-2.0 */
#include "collective/plan/kind.h"

#include <stddef.h>

static const char *const kind_names[] = {
#define NAME(id, name) [TTI_##id] = name,
    TTI_KIND_LIST(NAME)
#undef NAME
};

const char *tti_kind_name(enum tti_kind kind)
{
    return (size_t)kind < sizeof kind_names / sizeof *kind_names ? kind_names[kind] : "unknown";
}
