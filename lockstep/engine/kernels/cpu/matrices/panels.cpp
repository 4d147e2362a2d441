#include "lockstep/engine/kernels/cpu/matrices/panels.h"

#include <algorithm>
#include <memory>

#include "lockstep/engine/kernels/cpu/transpose.h"

namespace lockstep::kernels::cpu {
namespace {

constexpr int64_t kLine = 16;  // floats

class Layout final : public OpaqueLayout {
 public:
  Layout(int64_t vectors, int64_t elements) : vectors_(vectors), elements_(elements) {}

  size_t bytes() const override {
    return static_cast<size_t>(panels_of(vectors_) * elements_ * kPanel) * sizeof(float);
  }
  bool equals(const OpaqueLayout& other) const override {
    const auto* o = dynamic_cast<const Layout*>(&other);
    return o && o->vectors_ == vectors_ && o->elements_ == elements_;
  }
  std::string to_string() const override { return "panels of " + std::to_string(kPanel); }

  void from_row_major(const void* source, void* destination) const override {
    auto* to = static_cast<float*>(destination);
    for (int64_t first = 0; first < vectors_; first += kPanel) {
      const float* const from = static_cast<const float*>(source) + first * elements_;
      const int64_t count = std::min(kPanel, vectors_ - first);
      int64_t i = 0;
      if (count == kPanel) {
        // Whole cache lines of four vectors at a time, because the vectors may lie powers of two
        // apart, and caches have few places for such addresses.
        for (; i + kLine <= elements_; i += kLine) {
          for (int64_t v = 0; v < kPanel; v += 4) {
            const float* four[4];
            for (int64_t k = 0; k < 4; ++k) four[k] = from + (v + k) * elements_;
            for (int64_t j = i; j < i + kLine; j += 4) {
              transpose_four(four, j, to + j * kPanel + v, kPanel);
            }
          }
        }
      }
      for (; i < elements_; ++i) {
        for (int64_t v = 0; v < kPanel; ++v) {
          to[i * kPanel + v] = v < count ? from[v * elements_ + i] : 0.0f;
        }
      }
      to += elements_ * kPanel;
    }
  }

  void to_row_major(const void* source, void* destination) const override {
    const auto* const from = static_cast<const float*>(source);
    auto* const to = static_cast<float*>(destination);
    for (int64_t v = 0; v < vectors_; ++v) {
      const float* const panel = from + v / kPanel * elements_ * kPanel + v % kPanel;
      for (int64_t i = 0; i < elements_; ++i) to[v * elements_ + i] = panel[i * kPanel];
    }
  }

 private:
  int64_t vectors_, elements_;
};

}  // namespace

TensorSpec panels_spec(const Shape& shape) {
  return {shape, DType::f32, std::make_shared<Layout>(shape[0], shape.elements() / shape[0])};
}

bool in_panels(const TensorSpec& spec) {
  return dynamic_cast<const Layout*>(spec.layout.get()) != nullptr;
}

}  // namespace lockstep::kernels::cpu
