#include "lockstep/engine/kernels/cuda/cuda.h"

namespace lockstep::kernels::cuda {

const Table& table() {
  static const Table instance{};
  return instance;
}

}  // namespace lockstep::kernels::cuda
