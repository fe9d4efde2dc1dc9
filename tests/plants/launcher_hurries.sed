# plant: src/cli/job_heal.c jobs=200
# Another host gets the ranks of a silent one before these have ended.
s/MARGIN_MS = GUARD_EXCLUDED_MS + 300/MARGIN_MS = -1000/
