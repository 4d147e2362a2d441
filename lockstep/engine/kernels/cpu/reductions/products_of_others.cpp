#include "lockstep/engine/kernels/reductions/products_of_others.h"

#include "lockstep/engine/kernels/cpu/rows.h"

namespace lockstep::kernels::cpu {

Kernel products_of_others(const ProductsOfOthersProblem& p) {
  const TensorSpec src = p.src.plain();
  const int64_t n = src.shape[-1], rows = n == 0 ? 0 : src.shape.elements() / n;
  Kernel kernel;
  kernel.rows_apart = src.shape.rank() > 1;
  kernel.forward = own_pass_with_scratch({input(0, src)}, {output(0, src)},
                                         static_cast<size_t>(n) * sizeof(double),
                                         [n, rows](void* const* r, void* const* w, void* scratch) {
                                           auto* const before = static_cast<double*>(scratch);
                                           for (int64_t row = 0; row < rows; ++row) {
                                             const float* const x = in(r, 0) + row * n;
                                             float* const y = out(w, 0) + row * n;
                                             double product = 1;
                                             for (int64_t i = 0; i < n; ++i) {
                                               before[i] = product;
                                               product *= static_cast<double>(x[i]);
                                             }
                                             product = 1;
                                             for (int64_t i = n; i-- > 0;) {
                                               y[i] = static_cast<float>(before[i] * product);
                                               product *= static_cast<double>(x[i]);
                                             }
                                           }
                                         });
  return kernel;
}

}  // namespace lockstep::kernels::cpu
