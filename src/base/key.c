/* SPDX-License-Identifier: Apache-2.0 */
#include "base/key.h"

#include "base/status.h"
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <tutti/experimental.h>
#include <unistd.h>

tutti_status tti_key_setup(tutti_error *error)
{
    if (sodium_init() >= 0) return TUTTI_OK;
    return tti_error_set(error, TUTTI_ERR_SYSTEM, 0, "libsodium could not be started");
}

void tti_key_forget(struct tti_key *key)
{
    sodium_memzero(key, sizeof *key);
}

tutti_status tti_key_random(struct tti_key *key, tutti_error *error)
{
    TTI_TRY(tti_key_setup(error));
    randombytes_buf(key->bytes, sizeof key->bytes);
    return TUTTI_OK;
}

/* Reads the key; returns false unless `text` is exactly the 64 digits, with or without a newline. */
static bool parse_key(const char *text, struct tti_key *key)
{
    size_t length = strlen(text), got = 0;
    if (length == TTI_KEY_TEXT && text[length - 1] == '\n') length--;
    if (length != TTI_KEY_TEXT - 1) return false;
    return sodium_hex2bin(key->bytes, sizeof key->bytes, text, length, NULL, &got, NULL) == 0 && got == sizeof *key;
}

/* ---- Files ----------------------------------------------------------------------------------------------------- */

static tutti_status check_file(int fd, const char *path, tutti_error *error)
{
    struct stat info;
    if (fstat(fd, &info) != 0) return tti_error_set(error, TUTTI_ERR_OPTION, errno, "the key file %.200s", path);
    if (!S_ISREG(info.st_mode))
        return tti_error_set(error, TUTTI_ERR_OPTION, 0, "the key file %.200s is not a file", path);
    if ((info.st_mode & (S_IRWXG | S_IRWXO)) != 0)
        return tti_error_set(error, TUTTI_ERR_OPTION, 0,
                             "the key file %.200s can be read by others than its owner: chmod 600 %.200s", path, path);
    if (info.st_uid != geteuid() && info.st_uid != 0)
        return tti_error_set(error, TUTTI_ERR_OPTION, 0, "the key file %.200s belongs to another user", path);
    return TUTTI_OK;
}

static tutti_status read_open_file(int fd, const char *path, struct tti_key *key, tutti_error *error)
{
    char text[TTI_KEY_TEXT + 2] = {0};
    TTI_TRY(check_file(fd, path, error));
    ssize_t got = read(fd, text, sizeof text - 1);
    bool good = got >= 0 && parse_key(text, key);
    sodium_memzero(text, sizeof text);
    if (good) return TUTTI_OK;
    return tti_error_set(error, TUTTI_ERR_OPTION, got < 0 ? errno : 0,
                         "the file %.200s does not hold a key; make one: tutti key FILE", path);
}

static tutti_status read_key(const char *path, struct tti_key *key, tutti_error *error)
{
    TTI_TRY(tti_key_setup(error));
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return tti_error_set(error, TUTTI_ERR_OPTION, errno,
                             "the key file %.200s cannot be opened; every host of the job needs it, made once by: "
                             "tutti key %.100s",
                             path, path);
    tutti_status status = read_open_file(fd, path, key, error);
    close(fd);
    return status;
}

tutti_status tti_key_find(const tutti_options *options, struct tti_key *key, bool *found, tutti_error *error)
{
    const char *text = getenv("TUTTI_KEY");
    *found = false;
    TTI_TRY(tti_key_setup(error));
    if (options->key_file != NULL && options->key_file[0] != '\0') {
        TTI_TRY(read_key(options->key_file, key, error));
    } else if (text != NULL && text[0] != '\0') {
        if (!parse_key(text, key))
            return tti_error_set(error, TUTTI_ERR_OPTION, 0, "TUTTI_KEY is not a key: it has 64 hexadecimal digits");
    } else {
        return TUTTI_OK;
    }
    *found = true;
    return TUTTI_OK;
}

static tutti_status write_key(int fd, const char *path, tutti_error *error)
{
    struct tti_key key;
    char text[TTI_KEY_TEXT];
    TTI_TRY(tti_key_random(&key, error));
    sodium_bin2hex(text, sizeof text, key.bytes, sizeof key.bytes);
    text[TTI_KEY_TEXT - 1] = '\n';
    bool written = write(fd, text, sizeof text) == (ssize_t)sizeof text;
    int why = errno;
    tti_key_forget(&key);
    sodium_memzero(text, sizeof text);
    return written ? TUTTI_OK : tti_error_set(error, TUTTI_ERR_SYSTEM, why, "%.200s cannot be written", path);
}

tutti_status tutti_key_create(const char *path, tutti_error *error)
{
    if (path == NULL) return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "the path of the key file is NULL");
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
    if (fd < 0)
        return tti_error_set(error, TUTTI_ERR_SYSTEM, errno, "%.200s cannot be made%s", path,
                             errno == EEXIST ? ", since a key is never replaced; give another name" : "");
    tutti_status status = write_key(fd, path, error);
    if (close(fd) != 0 && status == TUTTI_OK)
        status = tti_error_set(error, TUTTI_ERR_SYSTEM, errno, "%.200s cannot be written", path);
    if (status != TUTTI_OK) unlink(path);
    return status;
}
