#include "lockstep/engine/kernels/backends/table.h"

namespace lockstep::kernels {

#define LOCKSTEP_COMPILE(name, Problem, ...)                   \
  template <>                                                  \
  Kernel compile(const Table& table, const Problem& problem) { \
    return table.name(problem);                                \
  }
LOCKSTEP_KERNELS(LOCKSTEP_COMPILE, LOCKSTEP_NO_KERNEL)
#undef LOCKSTEP_COMPILE

Pass reorder(const Table& table, const TensorSpec& from, const TensorSpec& to) {
  return table.reorder(from, to);
}
Pass accumulate(const Table& table, const TensorSpec& spec) { return table.accumulate(spec); }
Pass zero(const Table& table, const TensorSpec& spec) { return table.zero(spec); }

}  // namespace lockstep::kernels
