/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes text from others (a peer, a file, a name) safe to be shown. On a terminal it could clear the screen, forge a
 * line or print itself backwards.
 */
#include <stddef.h>
#include <stdint.h>
#include <tutti/experimental.h>

/* Decodes the UTF-8 character at `at`; returns its bytes, 0 if there is none. */
static size_t decode(const unsigned char *at, uint32_t *character)
{
    static const struct {
        unsigned char mask, mark;
        uint32_t least;
    } forms[] = {{0x80, 0x00, 0}, {0xe0, 0xc0, 0x80}, {0xf0, 0xe0, 0x800}, {0xf8, 0xf0, 0x10000}};
    for (size_t more = 0; more < sizeof forms / sizeof *forms; more++) {
        if ((at[0] & forms[more].mask) != forms[more].mark) continue;
        uint32_t value = at[0] & (unsigned char)~forms[more].mask;
        for (size_t i = 1; i <= more; i++) {
            if ((at[i] & 0xc0) != 0x80) return 0; /* includes the end of the text */
            value = value << 6 | (at[i] & 0x3f);
        }
        *character = value;
        return value >= forms[more].least && value <= 0x10ffff ? more + 1 : 0;
    }
    return 0;
}

/* Returns 0 for control characters, line and paragraph separators, surrogates, and marks that change the direction of
 * writing. */
static int is_plain(uint32_t c)
{
    if (c < 0x20 || (c >= 0x7f && c < 0xa0)) return 0;
    return !(c == 0x200e || c == 0x200f || (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069) ||
             (c >= 0xd800 && c <= 0xdfff));
}

char *tutti_text_printable(char *text)
{
    if (text == NULL) return NULL;
    const unsigned char *from = (const unsigned char *)text;
    char *to = text;
    while (*from != '\0') {
        uint32_t character = 0;
        size_t bytes = decode(from, &character);
        if (bytes > 0 && is_plain(character)) {
            for (size_t i = 0; i < bytes; i++) *to++ = (char)from[i];
        } else {
            *to++ = '?';
        }
        from += bytes > 0 ? bytes : 1;
    }
    *to = '\0';
    return text;
}
