"""The simulator: the engine on a virtual clock. Reads scenarios and logs, runs policies, prints what happened."""
