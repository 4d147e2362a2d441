#include "lockstep/engine/kernels/cpu/matrices/panels.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "lockstep/base/numeric/clones.h"
#include "lockstep/base/prefetch.h"
#include "lockstep/engine/kernels/cpu/rows.h"
#include "lockstep/engine/kernels/cpu/transpose.h"
#include "lockstep/engine/tensor/part_layout.h"

namespace lockstep::kernels::cpu {
namespace {

constexpr int64_t kLine = 16;  // floats, or pairs

// The next kLine steps of kPanel vectors, `elements` apart: steps x vectors, a float or a pair
// each. Whole cache lines of four vectors at a time, because the vectors may lie powers of two
// apart, and caches have few sets for such addresses.
LOCKSTEP_INLINE void pack_line(const float* from, int64_t elements, float* to) {
  for (int64_t v = 0; v < kPanel; v += 4) {
    const float* four[4];
    for (int64_t k = 0; k < 4; ++k) four[k] = from + (v + k) * elements;
    for (int64_t j = 0; j < kLine; j += 4) transpose_four(four, j, to + j * kPanel + v, kPanel);
  }
}
LOCKSTEP_INLINE void pack_line(const float* from, int64_t elements, BFloat16* to) {
  float pairs[4][kLine];
  for (int64_t v = 0; v < kPanel; v += 4) {
    const float* four[4];
    for (int64_t k = 0; k < 4; ++k, from += elements) {
      BFloat16 rounded[kLine * 2];
      for (int64_t j = 0; j < kLine * 2; ++j) rounded[j] = to_bfloat16(from[j]);
      std::memcpy(pairs[k], rounded, sizeof rounded);
      four[k] = pairs[k];
    }
    for (int64_t j = 0; j < kLine; j += 4) {
      transpose_four(four, j, reinterpret_cast<float*>(to) + j * kPanel + v, kPanel);
    }
  }
}

template <class T>
LOCKSTEP_INLINE void pack_panel_of(const float* from, int64_t stride, int64_t elements,
                                   int64_t count, T* to) {
  constexpr int64_t kTerms = kTogether<T>, kNumbers = kLine * kTerms;
  int64_t i = 0;
  if (count == kPanel) {
    for (; i + kNumbers <= elements; i += kNumbers) {
      // Where the panel is shared, other threads have read the earlier contents.
      if (i + 3 * kNumbers <= elements) {
        for (int64_t k = 0; k < kLine; ++k) {
          prefetch_to_write(to + (i + 2 * kNumbers) * kPanel + k * kPanel * kTerms);
        }
      }
      pack_line(from + i, stride, to + i * kPanel);
    }
  }
  for (; i < elements; i += kNumbers) {
    const int64_t rest = std::min(kNumbers, elements - i);
    float padded[kPanel * kNumbers] = {};
    for (int64_t v = 0; v < count; ++v) {
      std::memcpy(padded + v * kNumbers, from + v * stride + i,
                  static_cast<size_t>(rest) * sizeof(float));
    }
    T line[kNumbers * kPanel];
    pack_line(padded, kNumbers, line);
    std::memcpy(to + i * kPanel, line,
                static_cast<size_t>(steps_of<T>(rest) * kTerms * kPanel) * sizeof(T));
  }
}

}  // namespace

LOCKSTEP_CLONES void pack_panel(const float* from, int64_t stride, int64_t elements, int64_t count,
                                float* to) {
  pack_panel_of(from, stride, elements, count, to);
}
LOCKSTEP_CLONES void pack_panel(const float* from, int64_t stride, int64_t elements, int64_t count,
                                BFloat16* to) {
  pack_panel_of(from, stride, elements, count, to);
}

namespace {

class Panels : public PartLayout {};

template <class T>
class PanelsOf final : public Panels {
 public:
  PanelsOf(int64_t vectors, int64_t elements) : vectors_(vectors), elements_(elements) {}

  size_t bytes() const override {
    return static_cast<size_t>(panels_of(vectors_) * panel()) * sizeof(T);
  }
  bool equals(const OpaqueLayout& other) const override {
    const auto* o = dynamic_cast<const PanelsOf*>(&other);
    return o && o->vectors_ == vectors_ && o->elements_ == elements_;
  }
  std::string to_string() const override {
    return "panels of " + std::to_string(kPanel) + (kTogether<T> > 1 ? ", bf16" : "");
  }

  void from_row_major(const void* source, void* destination) const override {
    part_from_row_major(source, destination, {0, vectors_ * elements_});
  }

  // A panel.
  int64_t part() const override { return std::max<int64_t>(1, kPanel * elements_); }

  void part_from_row_major(const void* source, void* destination,
                           const IndexRange& elements) const override {
    if (elements.count == 0) return;
    const auto* const from = static_cast<const float*>(source);
    for (int64_t v = elements.first / elements_; v * elements_ < elements.end(); v += kPanel) {
      T* const to = static_cast<T*>(destination) + v / kPanel * panel();
      pack_panel(from + v * elements_, elements_, elements_, std::min(kPanel, vectors_ - v), to);
    }
  }

  void to_row_major(const void* source, void* destination) const override {
    constexpr int64_t kTerms = kTogether<T>;
    const auto* const from = static_cast<const T*>(source);
    auto* const to = static_cast<float*>(destination);
    for (int64_t v = 0; v < vectors_; ++v) {
      const T* const vector = from + v / kPanel * panel() + v % kPanel * kTerms;
      for (int64_t i = 0; i < elements_; ++i) {
        to[v * elements_ + i] = to_float(vector[i / kTerms * kTerms * kPanel + i % kTerms]);
      }
    }
  }

 private:
  // Numbers of a panel.
  int64_t panel() const { return steps_of<T>(elements_) * kTogether<T> * kPanel; }

  int64_t vectors_, elements_;
};

}  // namespace

TensorSpec panels_spec(const Shape& shape, DType dtype) {
  return with_elements(dtype, [&]<class T>(T*) {
    return TensorSpec{shape, DType::f32,
                      std::make_shared<PanelsOf<T>>(shape[0], shape.elements() / shape[0])};
  });
}

bool in_panels(const TensorSpec& spec) {
  return dynamic_cast<const Panels*>(spec.layout.get()) != nullptr;
}

}  // namespace lockstep::kernels::cpu
