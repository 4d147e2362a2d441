#include "lockstep/engine/kernels/cpu/lanes_weights.h"

#include <memory>

namespace lockstep::kernels::cpu {
namespace {

// G g G^T of a window, and back: the middle is the difference of what was made of it.
void transform(const float (&g)[9], float (&u)[16]) {
  float half[4][3];
  for (int c = 0; c < 3; ++c) {
    const float ends = g[c] + g[6 + c];
    half[0][c] = g[c];
    half[1][c] = 0.5f * (ends + g[3 + c]);
    half[2][c] = 0.5f * (ends - g[3 + c]);
    half[3][c] = g[6 + c];
  }
  for (int r = 0; r < 4; ++r) {
    const float ends = half[r][0] + half[r][2];
    u[4 * r] = half[r][0];
    u[4 * r + 1] = 0.5f * (ends + half[r][1]);
    u[4 * r + 2] = 0.5f * (ends - half[r][1]);
    u[4 * r + 3] = half[r][2];
  }
}
void transform_back(const float (&u)[16], float (&g)[9]) {
  float half[4][3];
  for (int r = 0; r < 4; ++r) {
    half[r][0] = u[4 * r];
    half[r][1] = u[4 * r + 1] - u[4 * r + 2];
    half[r][2] = u[4 * r + 3];
  }
  for (int c = 0; c < 3; ++c) {
    g[c] = half[0][c];
    g[3 + c] = half[1][c] - half[2][c];
    g[6 + c] = half[3][c];
  }
}

class Layout final : public OpaqueLayout {
 public:
  explicit Layout(const LanesWeights& w) : w_(w) {}

  size_t bytes() const override {
    return static_cast<size_t>(w_.channels * w_.filters * w_.places()) * sizeof(float);
  }
  bool equals(const OpaqueLayout& other) const override {
    const auto* o = dynamic_cast<const Layout*>(&other);
    return o && o->w_ == w_;
  }
  std::string to_string() const override {
    return std::string("for lanes, ") + (w_.winograd ? "Winograd's" : "direct") +
           (w_.turned ? ", turned" : "");
  }
  void from_row_major(const void* source, void* destination) const override {
    const auto* from = static_cast<const float*>(source);
    auto* const to = static_cast<float*>(destination);
    for_each_window([&](int64_t window, int64_t at, int64_t step) {
      float g[9];
      for (int i = 0; i < 9; ++i) g[i] = from[window * 9 + (w_.turned ? 8 - i : i)];
      if (!w_.winograd) {
        for (int i = 0; i < 9; ++i) to[at + i * step] = g[i];
        return;
      }
      float u[16];
      transform(g, u);
      for (int i = 0; i < 16; ++i) to[at + i * step] = u[i];
    });
  }
  void to_row_major(const void* source, void* destination) const override {
    const auto* from = static_cast<const float*>(source);
    auto* const to = static_cast<float*>(destination);
    for_each_window([&](int64_t window, int64_t at, int64_t step) {
      float g[9];
      if (w_.winograd) {
        float u[16];
        for (int i = 0; i < 16; ++i) u[i] = from[at + i * step];
        transform_back(u, g);
      } else {
        for (int i = 0; i < 9; ++i) g[i] = from[at + i * step];
      }
      for (int i = 0; i < 9; ++i) to[window * 9 + (w_.turned ? 8 - i : i)] = g[i];
    });
  }

 private:
  // body(number of the window in row-major memory, place of its first number, step to the next).
  template <class Body>
  void for_each_window(const Body& body) const {
    const int64_t in = w_.in(), out = w_.out();
    for (int64_t t = 0; t < weight_tiles(out); ++t) {
      const int64_t begin = weight_tile_begin(out, t), end = weight_tile_begin(out, t + 1);
      for (int64_t i = 0; i < in; ++i) {
        for (int64_t o = begin; o < end; ++o) {
          const int64_t window = w_.turned ? i * w_.channels + o : o * w_.channels + i;
          if (w_.winograd) {
            body(window, begin * in + i * (end - begin) + (o - begin), in * out);
          } else {
            body(window, (begin * in + i * (end - begin)) * 9 + (o - begin), end - begin);
          }
        }
      }
    }
  }

  LanesWeights w_;
};

}  // namespace

TensorSpec lanes_weights_spec(const LanesWeights& w) {
  return {Shape{w.filters, w.channels, 3, 3}, DType::f32, std::make_shared<Layout>(w)};
}

bool in_lanes_weights(const TensorSpec& spec) {
  return dynamic_cast<const Layout*>(spec.layout.get()) != nullptr;
}

}  // namespace lockstep::kernels::cpu
