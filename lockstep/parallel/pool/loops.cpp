#include "lockstep/parallel/pool/loops.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/parallel/pool/task_context.h"
#include "lockstep/parallel/reduce/tree.h"

namespace lockstep::detail {

int64_t chunk_of(int64_t n, int64_t wanted, int workers) {
  if (n < 0 || wanted < 0) {
    throw InvalidArgument("[pool] a loop of " + std::to_string(n) + " passes in chunks of " +
                          std::to_string(wanted));
  }
  if (wanted > 0) return std::min(wanted, std::max<int64_t>(n, 1));
  return std::max<int64_t>(1, n / (4 * std::max(workers, 1)));
}

int64_t left_leaves(int64_t n) { return tree_split(n); }

void begin_pass(int64_t index) {
  check_cancelled();
  if (TaskContext* const context = TaskContext::current()) {
    context->task = static_cast<uint64_t>(index);
  }
}

}  // namespace lockstep::detail
