#include "lockstep/engine/kernels/shapes/take.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "lockstep/engine/kernels/cpu/rows.h"
#include "lockstep/engine/kernels/interface/element_types.h"
#include "lockstep/engine/kernels/shapes/indexed_axis.h"

namespace lockstep::kernels::cpu {
namespace {

template <class T>
constexpr T kNothing = std::is_same_v<T, float> ? std::numeric_limits<T>::quiet_NaN() : T{0};

template <class T>
void take_rows(const IndexedAxis& a, const T* src, const Indices& indices, T nothing, T* dst) {
  const int64_t inner = a.x.inner;
  for (int64_t o = 0; o < a.x.outer; ++o, src += a.x.size * inner) {
    for (int64_t j = 0; j < a.count; ++j, dst += inner) {
      const int64_t index = indices[j];
      if (index < 0 || index >= a.x.size) {
        std::fill_n(dst, inner, nothing);
      } else if (inner == 1) {
        *dst = src[index];
      } else {
        std::copy_n(src + index * inner, inner, dst);
      }
    }
  }
}

template <class T>
void take_elements(const IndexedAxis& a, const T* src, const Indices& indices, T nothing, T* dst) {
  const int64_t inner = a.x.inner;
  int64_t n = 0;
  for (int64_t o = 0; o < a.x.outer; ++o, src += a.x.size * inner) {
    for (int64_t j = 0; j < a.count; ++j) {
      for (int64_t i = 0; i < inner; ++i, ++n) {
        const int64_t index = indices[n];
        dst[n] = index >= 0 && index < a.x.size ? src[index * inner + i] : nothing;
      }
    }
  }
}

}  // namespace

Kernel take(const TakeProblem& p) {
  const char* const op = p.per_element ? "gather" : "take";
  const IndexedAxis axis = indexed_axis(op, p.src.shape, p.indices, p.axis, p.per_element);
  Kernel kernel;
  kernel.forward = with_type(op, p.src.dtype, [&]<class T>(T) {
    return own_pass({input(0, p.src.plain()), input(1, p.indices.plain())},
                    {output(0, plain_spec(axis.taken, p.src.dtype))},
                    [axis, nothing = p.zero_outside ? T{0} : kNothing<T>](
                        void* const* r, void* const* w, const RandomContext&) {
                      const auto taking = axis.per_element ? take_elements<T> : take_rows<T>;
                      taking(axis, in<T>(r, 0), axis.indices(r[1]), nothing, out<T>(w, 0));
                    });
  });
  // The indices of whole parts may have rows that are not those of src.
  kernel.rows_apart = p.per_element && p.axis > 0;
  return kernel;
}

}  // namespace lockstep::kernels::cpu
