/* SPDX-License-Identifier: Apache-2.0 */
#include "device/object.h"

#include "base/alloc.h"
#include "base/status.h"
#include "device/open.h"
#include <assert.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

enum { PLACES_FIRST = 64, KIND_BITS = 3, PLACE_BITS = 24 };
#define PLACES_MOST ((size_t)1 << PLACE_BITS)
_Static_assert(sizeof(uintptr_t) == 8, "a handle has 24 bits of place and 37 of uses");

struct place {
    struct tti_object *object; /* NULL: free */
    uint64_t uses;
    size_t next_free; /* place + 1; 0: none */
};

static struct {
    pthread_mutex_t lock;
    struct place *places;
    size_t count, room, free; /* free: place + 1 of the first */
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- Fork -------------------------------------------------------------------------------------------------------- */

static _Atomic uint64_t process = 1;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

/* Another thread may have held the table's lock when this process was forked. */
static void in_child(void)
{
    pthread_mutex_init(&table.lock, NULL);
    tti_devices_forked();
    atomic_fetch_add_explicit(&process, 1, memory_order_relaxed);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, in_child);
}

uint64_t tti_object_process(void)
{
    pthread_once(&fork_once, watch_forks);
    return atomic_load_explicit(&process, memory_order_relaxed);
}

/* ---- References -------------------------------------------------------------------------------------------------- */

void tti_object_init(struct tti_object *object, enum tti_object_kind kind, void (*destroy)(struct tti_object *object))
{
    object->kind = kind;
    object->destroy = destroy;
    object->handle = NULL;
    object->process = tti_object_process();
    atomic_store_explicit(&object->references, 1, memory_order_relaxed);
}

void tti_object_keep(struct tti_object *object)
{
    uint32_t before = atomic_fetch_add_explicit(&object->references, 1, memory_order_relaxed);
    assert(before > 0);
    (void)before;
}

void tti_object_give(struct tti_object *object)
{
    if (object == NULL) return;
    uint32_t before = atomic_fetch_sub_explicit(&object->references, 1, memory_order_acq_rel);
    assert(before > 0);
    if (before == 1) object->destroy(object);
}

/* ---- Handles ----------------------------------------------------------------------------------------------------- */

static void *encode(size_t place, uint64_t uses, enum tti_object_kind kind)
{
    return (void *)(uintptr_t)(uses << (PLACE_BITS + KIND_BITS) | (uint64_t)place << KIND_BITS | (uint64_t)kind);
}

static bool grow(void)
{
    size_t room = table.room == 0 ? PLACES_FIRST : table.room * 2;
    struct place *places = room > PLACES_MOST ? NULL : tti_calloc(room, sizeof *places);
    if (places == NULL) return false;
    if (table.count > 0) memcpy(places, table.places, table.count * sizeof *places);
    tti_free(table.places);
    table.places = places;
    table.room = room;
    return true;
}

/* Returns a place + 1, or 0: no memory. */
static size_t take_place(void)
{
    size_t found = table.free;
    if (found != 0) {
        table.free = table.places[found - 1].next_free;
        return found;
    }
    if (table.count == table.room && !grow()) return 0;
    table.places[table.count].uses = 1;
    return ++table.count;
}

bool tti_object_publish(struct tti_object *object)
{
    pthread_mutex_lock(&table.lock);
    size_t found = take_place();
    if (found != 0) {
        struct place *place = &table.places[found - 1];
        place->object = object;
        object->handle = encode(found - 1, place->uses, object->kind);
    }
    pthread_mutex_unlock(&table.lock);
    return found != 0;
}

static const char *noun_of(enum tti_object_kind kind)
{
    static const char *const nouns[] = {[TTI_OBJECT_DEVICE] = "device",
                                        [TTI_OBJECT_STREAM] = "stream",
                                        [TTI_OBJECT_MARK] = "mark",
                                        [TTI_OBJECT_BUFFER] = "buffer"};
    return nouns[kind];
}

static tutti_status refuse(const void *handle, enum tti_object_kind kind, tutti_error *error)
{
    const char *noun = noun_of(kind);
    uint64_t bits = (uint64_t)(uintptr_t)handle, given = bits & ((1U << KIND_BITS) - 1);
    if (handle == NULL) return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "the %s is NULL", noun);
    if (given != (uint64_t)kind && given >= TTI_OBJECT_DEVICE && given <= TTI_OBJECT_BUFFER)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "a %s was given where a %s belongs",
                             noun_of((enum tti_object_kind)given), noun);
    return tti_error_set(error, TUTTI_ERR_STALE, 0, "the %s was %s; make a new one", noun,
                         kind == TTI_OBJECT_DEVICE ? "closed" : "freed (dropped) before this call");
}

/* Returns the place of a valid handle, or NULL. With the lock held. */
static struct place *find(const void *handle, enum tti_object_kind kind)
{
    uint64_t bits = (uint64_t)(uintptr_t)handle;
    size_t place = (size_t)(bits >> KIND_BITS) & (PLACES_MOST - 1);
    if (handle == NULL || place >= table.count || table.places[place].object == NULL) return NULL;
    return encode(place, table.places[place].uses, kind) == handle ? &table.places[place] : NULL;
}

static void make_void(struct place *place)
{
    place->object = NULL;
    place->uses++;
    place->next_free = table.free;
    table.free = (size_t)(place - table.places) + 1;
}

static struct tti_object *look_up(const void *handle, enum tti_object_kind kind, bool revoke, tutti_error *error)
{
    uint64_t now = tti_object_process();
    bool foreign = false;
    pthread_mutex_lock(&table.lock);
    struct place *place = find(handle, kind);
    struct tti_object *object = place == NULL ? NULL : place->object;
    if (object != NULL && object->process != now) {
        foreign = true;
        object = NULL;
    }
    if (object != NULL && revoke)
        make_void(place); /* the caller owns its reference now */
    else if (object != NULL)
        tti_object_keep(object);
    pthread_mutex_unlock(&table.lock);
    if (foreign)
        tti_error_set(error, TUTTI_ERR_FORKED, 0,
                      "the %s belongs to the parent process; a device cannot be used after fork", noun_of(kind));
    else if (object == NULL)
        refuse(handle, kind, error);
    return object;
}

struct tti_object *tti_object_take(const void *handle, enum tti_object_kind kind, tutti_error *error)
{
    return look_up(handle, kind, false, error);
}

struct tti_object *tti_object_revoke(const void *handle, enum tti_object_kind kind, tutti_error *error)
{
    return look_up(handle, kind, true, error);
}
