// Memory that is kept for the time when memory has run out.
#pragma once

namespace lockstep::command {

// From now on this process keeps some MiB of address space back. They are released when operator
// new fails, so that destructors, the message and what is saved have memory. If memory runs out
// where no exception may leave, the process writes the message about memory and ends with
// `exit_code`. To be called once, by main(), before other threads start.
void keep_memory_reserve(int exit_code);

}  // namespace lockstep::command
