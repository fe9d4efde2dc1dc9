# plant: src/collective/peers/wire_agree.c seeds=400
# A coordinator waits a sixteenth of its deadline.
s/if (waited_ns < call->deadline_ms \* MS) return/if (waited_ns < call->deadline_ms * MS \/ 16) return/
