/* SPDX-License-Identifier: Apache-2.0
 *
 * What driver and workers both know: the operations, what `bytes` means for each, and the lines they exchange.
 *
 * `bytes` means what it means in nccl-tests:
 *     all_reduce, broadcast      the buffer
 *     all_gather                 everything a rank receives; each rank contributes bytes / ranks
 *     reduce_scatter             everything a rank contributes; each rank receives bytes / ranks
 *     all_to_all                 everything a rank sends; bytes / ranks go to each
 *     ping_pong                  one message between ranks 0 and 1
 *     window                     one of 64 messages from rank 0 to rank 1 that are in flight at once
 * A block is at least one element, so that with n > bytes / 4 ranks a cell moves n elements, not `bytes`.
 *
 * Lines, driver to worker:   run OP BYTES WARM BATCH SAMPLES CHECK      then: quit
 * worker to driver:          hello RANK PID       done RANK WRONG NS:LOST_NS…
 *                            missing RANK REASON  error RANK REASON
 */
#ifndef PEERS_CELLS_HPP
#define PEERS_CELLS_HPP

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string>

namespace peers
{

enum class op { all_reduce, all_gather, reduce_scatter, broadcast, all_to_all, ping_pong, barrier, window };

inline constexpr std::array<const char *, 8> op_names = {
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "ping_pong", "barrier", "window",
};

/* Between ranks 0 and 1: the others have no part in it. */
inline bool is_for_two(op what)
{
    return what == op::ping_pong || what == op::window;
}

/* A window's messages: those from rank 0; then rank 1 says that it has them all. */
inline constexpr int window_size = 64;

/* What one of a batch is timed as. */
inline int parts_of(op what)
{
    return what == op::ping_pong ? 2 : what == op::window ? window_size : 1;
}

inline const char *op_name(op what)
{
    return op_names[static_cast<std::size_t>(what)];
}

inline std::optional<op> op_named(const std::string &name)
{
    const auto found = std::find(op_names.begin(), op_names.end(), name);
    if (found == op_names.end()) return std::nullopt;
    return static_cast<op>(found - op_names.begin());
}

/* One collective call, in elements of f32. `block` is the whole buffer where a rank has only one block. */
struct call {
    op what;
    int ranks;
    std::size_t block;

    bool has_blocks() const
    {
        return what == op::all_gather || what == op::reduce_scatter || what == op::all_to_all;
    }
    std::size_t whole() const
    {
        return has_blocks() ? block * static_cast<std::size_t>(ranks) : block;
    }
};

inline call make_call(op what, std::size_t bytes, int ranks)
{
    call made{what, ranks, 0};
    if (what == op::barrier) return made;
    const std::size_t parts = made.has_blocks() ? static_cast<std::size_t>(ranks) : 1;
    made.block = std::max<std::size_t>(1, bytes / sizeof(float) / parts);
    return made;
}

} // namespace peers
#endif
