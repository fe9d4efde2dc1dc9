/* SPDX-License-Identifier: Apache-2.0 */
#include "device/code_cache.h"

#include "base/alloc.h"
#include "base/log.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { KEY_BYTES = 16, SUM_BYTES = 32, CODE_MOST = 64 << 20, FOLDER_MODE = 0700, FILE_MODE = 0600 };

/* The head of a file; the code follows. */
struct head {
    char magic[8];
    uint64_t bytes; /* the size of the code */
    unsigned char sum[SUM_BYTES];
};
static const char magic[8] = "tutti 1";

/* ---- Where -------------------------------------------------------------------------------------------------------- */

/* Finds the folder; returns false if there is none, since no variable says where the user's files are. */
static bool find_folder(char folder[PATH_MAX])
{
    tutti_options options;
    (void)tutti_options_init(&options, NULL);
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int length = 0;
    if (options.cache[0] != '\0')
        length = snprintf(folder, PATH_MAX, "%s", options.cache);
    else if (cache != NULL && cache[0] == '/')
        length = snprintf(folder, PATH_MAX, "%s/tutti", cache);
    else if (home != NULL && home[0] == '/')
        length = snprintf(folder, PATH_MAX, "%s/.cache/tutti", home);
    return length > 0 && length < PATH_MAX - 64;
}

/* Makes the folder and those above it; returns 0 or an errno. */
static int make_folder(char *folder)
{
    for (char *slash = strchr(folder + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(folder, FOLDER_MODE); /* if it fails, the last mkdir says why */
        *slash = '/';
    }
    return mkdir(folder, FOLDER_MODE) == 0 || errno == EEXIST ? 0 : errno;
}

static void tell_once(const char *folder, const char *what, int code)
{
    static atomic_bool told;
    if (atomic_exchange_explicit(&told, true, memory_order_relaxed)) return;
    tti_log(TUTTI_WARN, "compiled kernels cannot be kept in %s: %s: %s; each process compiles them again (TUTTI_CACHE)",
            folder, what, strerror(code));
}

/* ---- Hashes ------------------------------------------------------------------------------------------------------- */

static void add_text(crypto_generichash_state *state, const char *text)
{
    /* the zero at its end separates texts */
    crypto_generichash_update(state, (const unsigned char *)text, strlen(text) + 1);
}

void tti_code_key(const struct tti_nvrtc *nvrtc, const char *source, const char *const *options, const char *target,
                  char key[TTI_CODE_KEY])
{
    crypto_generichash_state state;
    unsigned char hash[KEY_BYTES];
    char version[32];
    (void)snprintf(version, sizeof version, "%d.%d", nvrtc->major, nvrtc->minor);
    (void)crypto_generichash_init(&state, NULL, 0, sizeof hash);
    add_text(&state, version);
    add_text(&state, target);
    for (size_t i = 0; options[i] != NULL; i++) add_text(&state, options[i]);
    add_text(&state, source);
    (void)crypto_generichash_final(&state, hash, sizeof hash);
    (void)sodium_bin2hex(key, TTI_CODE_KEY, hash, sizeof hash);
}

/* ---- Reading ------------------------------------------------------------------------------------------------------ */

static bool read_all(int fd, void *to, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t got = read(fd, (char *)to + done, bytes - done);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        done += (size_t)got;
    }
    return true;
}

/* Returns the code of an open file; NULL: it is not complete. */
static char *read_code(int fd, size_t *bytes)
{
    struct head head;
    unsigned char sum[SUM_BYTES];
    struct stat about;
    if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode) || !read_all(fd, &head, sizeof head)) return NULL;
    if (memcmp(head.magic, magic, sizeof magic) != 0 || head.bytes == 0 || head.bytes > CODE_MOST) return NULL;
    if ((uint64_t)about.st_size != sizeof head + head.bytes) return NULL;
    char *code = tti_calloc(1, head.bytes + 1);
    if (code == NULL) return NULL;
    if (read_all(fd, code, head.bytes)) {
        (void)crypto_generichash(sum, sizeof sum, (const unsigned char *)code, head.bytes, NULL, 0);
        *bytes = head.bytes;
        if (memcmp(sum, head.sum, sizeof sum) == 0) return code;
    }
    tti_free(code);
    return NULL;
}

bool tti_code_read(const char *key, struct tti_code *code)
{
    char path[PATH_MAX + 64], folder[PATH_MAX];
    if (!find_folder(folder)) return false;
    (void)snprintf(path, sizeof path, "%s/%s", folder, key);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return false;
    size_t bytes = 0;
    char *read = read_code(fd, &bytes);
    (void)close(fd);
    if (read == NULL) {
        tti_log(TUTTI_INFO, "%s is damaged or of another version: it is compiled again", path);
        return false;
    }
    *code = (struct tti_code){read, bytes};
    return true;
}

/* ---- Writing ------------------------------------------------------------------------------------------------------ */

static bool write_all(int fd, const void *from, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t put = write(fd, (const char *)from + done, bytes - done);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return false;
        done += (size_t)put;
    }
    return true;
}

/* Returns 0 or an errno. */
static int write_file(int fd, const struct tti_code *code)
{
    struct head head = {.bytes = code->count};
    memcpy(head.magic, magic, sizeof magic);
    (void)crypto_generichash(head.sum, sizeof head.sum, (const unsigned char *)code->bytes, code->count, NULL, 0);
    errno = 0;
    bool good = fchmod(fd, FILE_MODE) == 0 && write_all(fd, &head, sizeof head) &&
                write_all(fd, code->bytes, code->count);
    return good ? 0 : errno != 0 ? errno : EIO;
}

void tti_code_write(const char *key, const struct tti_code *code)
{
    char path[PATH_MAX + 64], working[PATH_MAX + 96], folder[PATH_MAX];
    if (!find_folder(folder)) {
        tell_once("the user's cache folder", "neither XDG_CACHE_HOME nor HOME names a folder", ENOENT);
        return;
    }
    int why = make_folder(folder);
    if (why != 0) {
        tell_once(folder, "making it", why);
        return;
    }
    (void)snprintf(path, sizeof path, "%s/%s", folder, key);
    (void)snprintf(working, sizeof working, "%s.XXXXXX", path);
    int fd = mkostemp(working, O_CLOEXEC);
    if (fd < 0) {
        tell_once(folder, "making a file", errno);
        return;
    }
    why = write_file(fd, code);
    if (close(fd) != 0 && why == 0) why = errno;
    if (why == 0 && rename(working, path) != 0) why = errno;
    if (why == 0) return;
    (void)unlink(working);
    tell_once(folder, "writing a file", why);
}
