# plant: src/collective/peers/wire_agree.c seeds=600
# Each rank tells of the lost ranks that it knows when it asks, whatever the others decide with it.
s/if (has_settled(lanes)) return/if (has_settled(lanes) \&\& lanes->comm->size == 0) return/
s/^        await_settling(lanes);/        if (comm->size == 0) await_settling(lanes);/
