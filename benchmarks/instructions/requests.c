/* Requests of the counted process to valgrind's callgrind. Outside of valgrind they do nothing.

   Compiled by `native.py` when a count begins; loaded by `counters.py`. */
#include <valgrind/callgrind.h>

void count_on(void) { CALLGRIND_START_INSTRUMENTATION; }
void count_off(void) { CALLGRIND_STOP_INSTRUMENTATION; }
void write_counts(void) { CALLGRIND_DUMP_STATS; }
