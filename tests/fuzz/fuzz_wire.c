/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz: runs=200000 */
/* The heads of frames: any bytes are judged, and what is taken fits what is expected. */
#include "transport/tcp_head.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void must(bool holds)
{
    if (!holds) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct tti_tcp_head head = {.magic = TTI_TCP_MAGIC, .version = TTI_TCP_VERSION};
    uint64_t words[4] = {0};
    const char *why = NULL;
    if (bytes < sizeof words + 1) return 0;
    memcpy(words, data, sizeof words);
    size_t rest = bytes - sizeof words - 1 < sizeof head ? bytes - sizeof words - 1 : sizeof head;
    unsigned how = data[sizeof words];
    memcpy(&head, data + sizeof words + 1, rest);
    if ((how & 1) != 0) { /* past the first checks */
        head.magic = TTI_TCP_MAGIC;
        head.version = TTI_TCP_VERSION;
        head.frame.zero = 0;
        head.epoch = (uint32_t)words[0];
        head.number = words[1] + (how >> 4 & 1);
    }
    struct tti_tcp_expected expected = {.epoch = (uint32_t)words[0],
                                        .number = words[1],
                                        .striped = (how & 2) != 0,
                                        .bytes = words[2] % TTI_TCP_FRAME_MOST + 1,
                                        .first_stream = (how & 4) != 0};
    expected.come = words[3] % expected.bytes;
    enum tti_tcp_verdict verdict = tti_tcp_judge(&head, &expected, &why);
    if (verdict == TTI_TCP_BAD) must(why != NULL);
    if (verdict != TTI_TCP_TAKE) return 0;
    must(head.magic == TTI_TCP_MAGIC && head.epoch == expected.epoch && head.frame.bytes <= TTI_TCP_FRAME_MOST);
    if (head.kind != TTI_TCP_CHUNK) must(!expected.striped && expected.first_stream);
    if (head.kind == TTI_TCP_CHUNK) {
        must(expected.striped && head.number == expected.number && head.frame.bytes > 0);
        must(TTI_TCP_OFFSET(&head) + head.frame.bytes <= expected.bytes);
        must(expected.come + head.frame.bytes <= expected.bytes);
    }
    return 0;
}
