"""How long a daemon waits for its shims, and how much it puts up with, before it takes matters into its own hands."""

#: From the start of a shim, or the word that members join, to members at the gate.
READY_WITHIN_S = 60.0
#: A shim that lives answers, or ends when it is told to.
ANSWER_WITHIN_S = 10.0
#: A line is taken up again.
FOUND_WITHIN_S = 30.0
#: The same while a daemon starts, which keeps everybody waiting; then it is looked for beside everything else.
FOUND_AT_FIRST_S = 3.0
#: So long after the grace of a stop members are gone, or they are killed from here, whatever answers for them.
LATE_S = 2.0
#: After that a shim says so, or is to blame. Of a run that goes on without some members it has the time of any answer.
SILENT_S = 2.0
#: How often a line may end by itself.
CUTS_MAX = 20
