#include "lockstep/engine/kernels/elementwise/addition.h"

#include <cstring>

#include "lockstep/engine/kernels/cpu/rows.h"
#include "lockstep/engine/kernels/cpu/vectorized.h"

namespace lockstep::kernels::cpu {

// All operands have the first one's layout and type. Adds from the first to the last.
Kernel addition(const AdditionProblem& p) {
  const TensorSpec spec = p.src.front();
  const size_t bytes = spec.bytes(), count = bytes / size_of(spec.dtype);
  const int terms = static_cast<int>(p.src.size());
  Kernel kernel;
  std::vector<Operand> reads;
  for (int i = 0; i < terms; ++i) reads.push_back(input(i, spec));
  kernel.forward = with_elements(spec.dtype, [&]<class T>(T*) {
    return own_pass(reads, {output(0, spec)},
                    [=](void* const* r, void* const* w, const RandomContext&) {
                      if (terms == 1) {
                        std::memcpy(w[0], r[0], bytes);
                        return;
                      }
                      add(in<T>(r, 0), in<T>(r, 1), out<T>(w, 0), count);
                      for (int i = 2; i < terms; ++i)
                        add(out<T>(w, 0), in<T>(r, i), out<T>(w, 0), count);
                    });
  });
  if (terms > 1) kernel.forward.in_place = {0, 1};
  kernel.rows_apart = true;
  for (int i = 0; i < terms; ++i) {
    kernel.backward.push_back(own_pass({diff_output(0, spec)}, {diff_input(i, spec)},
                                       [=](void* const* r, void* const* w, const RandomContext&) {
                                         std::memcpy(w[0], r[0], bytes);
                                       }));
    kernel.backward.back().copies = true;
  }
  return kernel;
}

}  // namespace lockstep::kernels::cpu
