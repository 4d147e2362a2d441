// Layers of known image networks against formulas in double, whose derivatives are differences.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "lockstep/base/error.h"
#include "lockstep/engine/nn/layers.h"
#include "lockstep/engine/nn/network.h"
#include "lockstep/engine/ops/ops.h"
#include "tests/engine/ops/harness.h"

namespace lockstep {
namespace {

using optest::array_of;
using optest::expect_refusal;
using optest::random_array;
using optest::relative_error;
using optest::tensor_of;
using reference::Array;

// A layer in double: x and the parameters, in the order of their declaration.
using InDouble = std::function<Array(const std::vector<Array>& values)>;

struct ImageSize {
  int64_t n, c, h, w;
  std::vector<int64_t> dims() const { return {n, c, h, w}; }
};

Network of_layer(const ImageSize& size, const LayerPtr& layer) {
  Network n;
  n.add(image_input(
      {.height = size.h, .width = size.w, .channels = size.c, .normalization = "none"}));
  n.add(layer, "layer");
  n.initialize(1);
  return n;
}

double weighted(const Array& y, const Array& weights) {
  double sum = 0;
  for (size_t i = 0; i < y.values.size(); ++i) sum += y.values[i] * weights.values[i];
  return sum;
}

// Compares results and all gradients.
void expect_like(const ImageSize& size, const LayerPtr& layer, const InDouble& formula,
                 double range = 3) {
  SCOPED_TRACE(::testing::Message() << layer->type() << " of " << size.n << " x " << size.c << " x "
                                    << size.h << " x " << size.w);
  Network n = of_layer(size, layer);
  std::vector<Array> values{random_array(size.dims(), 5, -range, range)};
  std::vector<Tensor> tensors{tensor_of(values[0])};
  for (const Parameter& p : n.parameters()) {
    values.push_back(random_array(p.value.shape().dims(), 7 + values.size(), -1, 1));
    p.value.copy_from(tensor_of(values.back()));
    tensors.push_back(p.value);
  }
  const Array expected = formula(values);
  const Array weights = random_array(expected.dims, 9);
  Tape tape;
  tape.watch(tensors);
  const Tensor y = n.forward({tensors[0]}, {true, {0, 1, 0}});
  EXPECT_EQ(y.shape().dims(), expected.dims);
  EXPECT_LT(relative_error(array_of(y), expected), 1e-6);
  EXPECT_LT(relative_error(array_of(n.predict(tensors[0])), expected), 1e-6);
  const std::vector<Tensor> gradients = tape.gradient(optest::weighted_sum(y, weights), tensors);
  for (size_t k = 0; k < values.size(); ++k) {
    Array slopes = values[k];
    for (size_t i = 0; i < values[k].values.size(); ++i) {
      constexpr double step = 1e-5;
      std::vector<Array> higher = values, lower = values;
      higher[k].values[i] += step;
      lower[k].values[i] -= step;
      slopes.values[i] =
          (weighted(formula(higher), weights) - weighted(formula(lower), weights)) / (2 * step);
    }
    EXPECT_LT(relative_error(array_of(gradients[k]), slopes), 1e-5) << "gradient " << k;
  }
}

InDouble by_element(const std::function<double(double)>& f) {
  return [f](const std::vector<Array>& values) {
    Array y = values[0];
    for (double& v : y.values) v = f(v);
    return y;
  };
}

double gate6(double x) { return std::clamp(x + 3, 0.0, 6.0) / 6; }

constexpr ImageSize kSizes[] = {{1, 1, 1, 1}, {2, 3, 5, 4}, {3, 17, 1, 7}};

TEST(ImageLayers, HardFunctions) {
  for (const ImageSize& size : kSizes) {
    expect_like(size, hard_sigmoid(), by_element(gate6), 5);
    expect_like(size, hard_swish(), by_element([](double x) { return x * gate6(x); }), 5);
  }
}

TEST(ImageLayers, LayerScaleMultipliesChannels) {
  for (const ImageSize& size : kSizes) {
    expect_like(size, layer_scale(), [&](const std::vector<Array>& v) {
      Array y = v[0];
      for (size_t i = 0; i < y.values.size(); ++i) {
        y.values[i] *=
            v[1].values[i / static_cast<size_t>(size.h * size.w) % static_cast<size_t>(size.c)];
      }
      return y;
    });
  }
  Network n = of_layer({1, 3, 2, 2}, layer_scale({.initial = 0.3}));
  EXPECT_EQ(n.parameter("layer.scale").to_vector(), std::vector<float>(3, 0.3f));
  n = of_layer({1, 2, 2, 2}, layer_scale());
  EXPECT_EQ(n.parameter("layer.scale").to_vector(), std::vector<float>(2, 1e-6f));
}

TEST(ImageLayers, ChannelNormalizationSeesOnePixel) {
  for (const ImageSize& size : {ImageSize{2, 3, 5, 4}, ImageSize{1, 40, 1, 3}}) {
    expect_like(size, channel_normalization({.epsilon = 1e-3}), [&](const std::vector<Array>& v) {
      Array y = v[0];
      const int64_t space = size.h * size.w;
      for (int64_t n = 0; n < size.n; ++n) {
        for (int64_t p = 0; p < space; ++p) {
          const auto at = [&](int64_t c) {
            return static_cast<size_t>((n * size.c + c) * space + p);
          };
          double mean = 0, variance = 0;
          for (int64_t c = 0; c < size.c; ++c) mean += v[0].values[at(c)];
          mean /= static_cast<double>(size.c);
          for (int64_t c = 0; c < size.c; ++c) variance += std::pow(v[0].values[at(c)] - mean, 2);
          variance /= static_cast<double>(size.c);
          for (int64_t c = 0; c < size.c; ++c) {
            const auto k = static_cast<size_t>(c);
            y.values[at(c)] =
                (v[0].values[at(c)] - mean) / std::sqrt(variance + 1e-3) * v[1].values[k] +
                v[2].values[k];
          }
        }
      }
      return y;
    });
  }
}

// y = the sum of x over rows and columns of an image, by weights of places.
using Places = std::function<double(int64_t to, int64_t from)>;
InDouble by_places(const ImageSize& size, int64_t rows, int64_t columns, const Places& by_row,
                   const Places& by_column) {
  return [=](const std::vector<Array>& v) {
    Array y;
    y.dims = {size.n, size.c, rows, columns};
    for (int64_t image = 0; image < size.n * size.c; ++image) {
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < columns; ++j) {
          double sum = 0;
          for (int64_t p = 0; p < size.h; ++p) {
            for (int64_t q = 0; q < size.w; ++q) {
              sum += by_row(i, p) * by_column(j, q) *
                     v[0].values[static_cast<size_t>((image * size.h + p) * size.w + q)];
            }
          }
          y.values.push_back(sum);
        }
      }
    }
    return y;
  };
}

TEST(ImageLayers, NearestUpsamplingRepeatsPixels) {
  for (const ImageSize& size : kSizes) {
    for (const Size2d scale : {Size2d{2, 2}, Size2d{1, 3}, Size2d{4, 1}}) {
      const auto near = [](int64_t s) {
        return [s](int64_t to, int64_t from) { return to / s == from ? 1.0 : 0.0; };
      };
      expect_like(
          size, upsampling2d({.scale = scale}),
          by_places(size, size.h * scale[0], size.w * scale[1], near(scale[0]), near(scale[1])));
    }
  }
}

// PyTorch's upsample_bilinear2d with align_corners = False, in its own words.
TEST(ImageLayers, BilinearUpsamplingIsThatOfPyTorch) {
  const auto linear = [](int64_t s, int64_t count) {
    return [=](int64_t to, int64_t from) {
      const double source =
          std::max(0.0, (static_cast<double>(to) + 0.5) / static_cast<double>(s) - 0.5);
      const auto low = static_cast<int64_t>(source);
      const int64_t high = low + (low < count - 1 ? 1 : 0);
      const double part = source - static_cast<double>(low);
      return (from == low ? 1 - part : 0) + (from == high ? part : 0);
    };
  };
  for (const ImageSize& size : kSizes) {
    for (const Size2d scale : {Size2d{2, 2}, Size2d{1, 3}, Size2d{4, 1}}) {
      expect_like(size, upsampling2d({.scale = scale, .method = "bilinear"}),
                  by_places(size, size.h * scale[0], size.w * scale[1], linear(scale[0], size.h),
                            linear(scale[1], size.w)));
    }
  }
}

TEST(ImageLayers, AdaptivePoolingHasTheAreasOfPyTorch) {
  const auto area = [](int64_t from, int64_t to) {
    return [=](int64_t i, int64_t j) {
      const int64_t begin = i * from / to, end = ((i + 1) * from + to - 1) / to;
      return j >= begin && j < end ? 1.0 / static_cast<double>(end - begin) : 0.0;
    };
  };
  for (const ImageSize& size :
       {ImageSize{1, 1, 1, 1}, ImageSize{2, 3, 6, 4}, ImageSize{1, 2, 7, 13}}) {
    for (const Size2d to :
         {Size2d{1, 1}, Size2d{3, 2}, Size2d{5, 4}, Size2d{1, 7}, Size2d{8, 14}}) {
      expect_like(size, adaptive_average_pooling2d({.size = to}),
                  by_places(size, to[0], to[1], area(size.h, to[0]), area(size.w, to[1])));
    }
  }
}

TEST(ImageLayers, SqueezeExcitationWeighsChannels) {
  for (const std::string activation : {"relu", "swish"}) {
    for (const std::string gate : {"sigmoid", "hard_sigmoid"}) {
      for (const ImageSize& size : {ImageSize{1, 1, 1, 1}, ImageSize{2, 7, 3, 5}}) {
        const int64_t units = size.c == 7 ? 3 : 1;  // 7 / 2, rounded down
        SqueezeExcitationOptions o{.units = 1, .activation = activation, .gate = gate};
        if (size.c == 7) o.units = 0, o.ratio = 2;
        expect_like(size, squeeze_excitation(o), [=](const std::vector<Array>& v) {
          Array y = v[0];
          const int64_t space = size.h * size.w;
          for (int64_t n = 0; n < size.n; ++n) {
            std::vector<double> hidden(static_cast<size_t>(units));
            for (int64_t u = 0; u < units; ++u) {
              double sum = v[2].values[static_cast<size_t>(u)];
              for (int64_t c = 0; c < size.c; ++c) {
                double mean = 0;
                for (int64_t p = 0; p < space; ++p) {
                  mean += v[0].values[static_cast<size_t>((n * size.c + c) * space + p)];
                }
                sum += v[1].values[static_cast<size_t>(u * size.c + c)] * mean /
                       static_cast<double>(space);
              }
              hidden[static_cast<size_t>(u)] =
                  activation == "relu" ? std::max(0.0, sum) : sum / (1 + std::exp(-sum));
            }
            for (int64_t c = 0; c < size.c; ++c) {
              double sum = v[4].values[static_cast<size_t>(c)];
              for (int64_t u = 0; u < units; ++u) {
                sum += v[3].values[static_cast<size_t>(c * units + u)] *
                       hidden[static_cast<size_t>(u)];
              }
              const double factor = gate == "sigmoid" ? 1 / (1 + std::exp(-sum)) : gate6(sum);
              for (int64_t p = 0; p < space; ++p) {
                y.values[static_cast<size_t>((n * size.c + c) * space + p)] *= factor;
              }
            }
          }
          return y;
        });
      }
    }
  }
}

TEST(ImageLayers, StochasticDepthDropsWholeObservations) {
  constexpr int64_t n = 4000, elements = 2 * 3 * 2;
  Network network = of_layer({n, 2, 3, 2}, stochastic_depth({.probability = 0.25}));
  const Tensor x = Tensor::full({n, 2, 3, 2}, 3);
  EXPECT_EQ(network.predict(x).to_vector(), x.to_vector());
  Tape tape;
  tape.watch({x});
  const Tensor y = network.forward({x}, {true, {0, 1, 0}});
  const std::vector<float> slope = tape.gradient(ops::sum(y), {x})[0].to_vector();
  const std::vector<float> all = y.to_vector();
  int64_t dropped = 0;
  for (int64_t i = 0; i < n; ++i) {
    const float first = all[static_cast<size_t>(i * elements)];
    dropped += first == 0;
    for (int64_t e = 0; e < elements; ++e) {
      const auto at = static_cast<size_t>(i * elements + e);
      ASSERT_EQ(all[at], first == 0 ? 0 : 4.0f) << i;
      ASSERT_FLOAT_EQ(slope[at], first == 0 ? 0 : 4.0f / 3) << i;
    }
  }
  EXPECT_NEAR(static_cast<double>(dropped) / n, 0.25, 0.03);
  // Another iteration and another layer draw others; a part of the mini-batch draws the same.
  EXPECT_NE(network.forward({x}, {true, {0, 2, 0}}).to_vector(), all);
  Network other;
  other.add(image_input({.height = 3, .width = 2, .channels = 2, .normalization = "none"}));
  other.add(stochastic_depth({.probability = 0.25}), "another");
  other.initialize(1);
  EXPECT_NE(other.forward({x}, {true, {0, 1, 0}}).to_vector(), all);
  const Tensor part = Tensor::full({7, 2, 3, 2}, 3);
  EXPECT_EQ(network.forward({part}, {true, {0, 1, 100}}).to_vector(),
            std::vector<float>(all.begin() + 100 * elements, all.begin() + 107 * elements));
}

TEST(ImageLayers, PixelsBecomeSteps) {
  Network n;
  n.add(image_input({.height = 2, .width = 3, .channels = 2, .normalization = "none"}));
  n.add(pixels_to_steps());
  n.add(last_step());
  n.initialize(1);
  std::vector<float> pixels(12);
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<float>(i);
  const Tensor x = Tensor::from(pixels, {1, 2, 2, 3});
  EXPECT_EQ(n.predict(x).to_vector(), (std::vector<float>{5, 11}));
  Network mean;
  mean.add(image_input({.height = 2, .width = 3, .channels = 2, .normalization = "none"}));
  mean.add(pixels_to_steps());
  mean.add(fully_connected({.units = 4}));
  mean.add(position_embedding({.positions = 6}));
  mean.add(transformer_block({.heads = 2}));
  mean.add(global_average_pooling1d());
  mean.initialize(3);
  EXPECT_EQ(mean.output_shapes(), std::vector<Shape>{Shape{4}});
  // An observation's result does not depend on its neighbors.
  const Tensor y = tensor_of(random_array({3, 2, 2, 3}, 4));
  const std::vector<float> values = y.to_vector();
  const Tensor second =
      Tensor::from(std::vector<float>(values.begin() + 12, values.begin() + 24), {1, 2, 2, 3});
  const std::vector<float> together = mean.predict(y).to_vector();
  EXPECT_EQ(mean.predict(second).to_vector(),
            std::vector<float>(together.begin() + 4, together.begin() + 8));
}

TEST(ImageLayers, RefuseWhatDoesNotFit) {
  const auto refuses = [](const LayerPtr& layer, std::initializer_list<const char*> parts) {
    expect_refusal([&] { of_layer({1, 8, 4, 4}, layer).check(); }, parts);
  };
  refuses(squeeze_excitation({}), {"squeeze_excitation", "`units` or `ratio`"});
  refuses(squeeze_excitation({.units = 2, .ratio = 4}), {"`units` or `ratio`, and not both"});
  refuses(squeeze_excitation({.ratio = 9}), {"ratio = 9", "8 channels"});
  refuses(squeeze_excitation({.units = 2, .activation = "tanh"}), {"activation", "tanh"});
  refuses(upsampling2d({.scale = {0, 2}}), {"scale", "0"});
  refuses(upsampling2d({.method = "bicubic"}), {"method", "bicubic"});
  refuses(adaptive_average_pooling2d({.size = {0, 1}}), {"size", "0"});
  expect_refusal(
      [] {
        of_layer({1, 1, 2048, 1}, adaptive_average_pooling2d({.size = {1 << 14, 1}})).check();
      },
      {"16384 areas of 2048 rows", "too many"});
  refuses(stochastic_depth({.probability = 1}), {"probability", "1"});
  refuses(stochastic_depth({.probability = -0.1}), {"probability"});
  for (const LayerPtr& layer : {upsampling2d(), adaptive_average_pooling2d({}),
                                squeeze_excitation({.units = 1}), pixels_to_steps()}) {
    Network n;
    n.add(feature_input({.features = 3, .normalization = "none"}));
    n.add(layer);
    expect_refusal([&] { n.check(); }, {"expected an image of channels x height x width"});
  }
}

}  // namespace
}  // namespace lockstep
