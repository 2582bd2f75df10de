"""When gangs start, by looks ahead: how long they run, what was learned of that, and the range around a start."""
