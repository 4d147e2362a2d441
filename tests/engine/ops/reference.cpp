#include "tests/engine/ops/reference.h"

#include <algorithm>
#include <cmath>

namespace lockstep::reference {
namespace {

int64_t positions(int64_t size, int64_t kernel, const Window& w, int axis) {
  const int64_t extent = w.dilation[axis] * (kernel - 1) + 1;
  return (size + w.before[axis] + w.after[axis] - extent) / w.stride[axis] + 1;
}

// Calls visit(output position, input position, p, q) for every pair within a window.
template <class Visit>
void slide(int64_t height, int64_t width, int64_t kernel_height, int64_t kernel_width,
           const Window& w, Visit visit) {
  const int64_t rows = positions(height, kernel_height, w, 0);
  const int64_t columns = positions(width, kernel_width, w, 1);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      for (int64_t p = 0; p < kernel_height; ++p) {
        for (int64_t q = 0; q < kernel_width; ++q) {
          const int64_t y = i * w.stride[0] + p * w.dilation[0] - w.before[0];
          const int64_t x = j * w.stride[1] + q * w.dilation[1] - w.before[1];
          if (y < 0 || y >= height || x < 0 || x >= width) continue;
          visit(i * columns + j, y * width + x, p, q);
        }
      }
    }
  }
}

// Calls visit(index in y, index in x, index in weights) for every product of a convolution.
template <class Visit>
void products(const Array& x, const Array& weights, const Window& w, Visit visit) {
  const int64_t n = x.dim(0), c = x.dim(1), h = x.dim(2), width = x.dim(3);
  const int64_t o = weights.dim(0), per_group = weights.dim(1);
  const int64_t kh = weights.dim(2), kw = weights.dim(3);
  const int64_t places = positions(h, kh, w, 0) * positions(width, kw, w, 1);
  const int64_t filters = o / w.groups;
  slide(h, width, kh, kw, w, [&](int64_t to, int64_t from, int64_t p, int64_t q) {
    for (int64_t image = 0; image < n; ++image) {
      for (int64_t f = 0; f < o; ++f) {
        const int64_t first = f / filters * per_group;
        for (int64_t k = 0; k < per_group; ++k) {
          visit((image * o + f) * places + to, (image * c + first + k) * h * width + from,
                ((f * per_group + k) * kh + p) * kw + q);
        }
      }
    }
  });
}

// Elements of one channel: calls visit(channel, index).
template <class Visit>
void by_channel(const Array& x, Visit visit) {
  const int64_t n = x.dim(0), c = x.dim(1);
  const int64_t space = x.count() / (n * c);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t k = 0; k < c; ++k) {
      for (int64_t s = 0; s < space; ++s) visit(k, (i * c + k) * space + s);
    }
  }
}

}  // namespace

Array::Array(std::vector<int64_t> d, double value) : dims(std::move(d)) {
  int64_t n = 1;
  for (int64_t extent : dims) n *= extent;
  values.assign(static_cast<size_t>(n), value);
}

Window same_window(const Array& x, int64_t kernel_height, int64_t kernel_width, Window w) {
  const int64_t kernel[2] = {kernel_height, kernel_width};
  for (int a = 0; a < 2; ++a) {
    const int64_t size = x.dim(2 + a);
    int64_t wanted = size / w.stride[a];
    if (size % w.stride[a] != 0) ++wanted;
    const int64_t reach = (wanted - 1) * w.stride[a] + w.dilation[a] * (kernel[a] - 1) + 1;
    const int64_t missing = reach > size ? reach - size : 0;
    w.before[a] = missing / 2;
    w.after[a] = missing - w.before[a];
  }
  return w;
}

Array convolution(const Array& x, const Array& weights, const Array& bias, const Window& w) {
  Array y({x.dim(0), weights.dim(0), positions(x.dim(2), weights.dim(2), w, 0),
           positions(x.dim(3), weights.dim(3), w, 1)});
  products(x, weights, w,
           [&](int64_t to, int64_t from, int64_t k) { y[to] += weights[k] * x[from]; });
  if (bias.count() > 0) by_channel(y, [&](int64_t c, int64_t i) { y[i] += bias[c]; });
  return y;
}

Array convolution_diff_x(const Array& x, const Array& weights, const Window& w, const Array& dy) {
  Array dx(x.dims);
  products(x, weights, w,
           [&](int64_t to, int64_t from, int64_t k) { dx[from] += weights[k] * dy[to]; });
  return dx;
}

Array convolution_diff_weights(const Array& x, const Array& weights, const Window& w,
                               const Array& dy) {
  Array dw(weights.dims);
  products(x, weights, w, [&](int64_t to, int64_t from, int64_t k) { dw[k] += x[from] * dy[to]; });
  return dw;
}

Array convolution_diff_bias(const Array& dy) {
  Array db({dy.dim(1)});
  by_channel(dy, [&](int64_t c, int64_t i) { db[c] += dy[i]; });
  return db;
}

namespace {

// For every output the inputs in its window, in row-major order.
std::vector<std::vector<int64_t>> windows(const Array& x, int64_t height, int64_t width,
                                          const Window& w) {
  const int64_t places = positions(x.dim(2), height, w, 0) * positions(x.dim(3), width, w, 1);
  const int64_t planes = x.dim(0) * x.dim(1), plane = x.dim(2) * x.dim(3);
  std::vector<std::vector<int64_t>> inputs(static_cast<size_t>(planes * places));
  slide(x.dim(2), x.dim(3), height, width, w, [&](int64_t to, int64_t from, int64_t, int64_t) {
    for (int64_t k = 0; k < planes; ++k) {
      inputs[static_cast<size_t>(k * places + to)].push_back(k * plane + from);
    }
  });
  return inputs;
}

int64_t first_largest(const Array& x, const std::vector<int64_t>& inputs) {
  int64_t best = inputs.front();
  for (int64_t i : inputs) {
    if (x[i] > x[best]) best = i;
  }
  return best;
}

double divisor(Pooling kind, int64_t height, int64_t width, size_t inputs) {
  return kind == Pooling::average_with_padding ? static_cast<double>(height * width)
                                               : static_cast<double>(inputs);
}

}  // namespace

Array pooling(const Array& x, Pooling kind, int64_t height, int64_t width, const Window& w) {
  Array y(
      {x.dim(0), x.dim(1), positions(x.dim(2), height, w, 0), positions(x.dim(3), width, w, 1)});
  const auto all = windows(x, height, width, w);
  for (int64_t to = 0; to < y.count(); ++to) {
    const auto& inputs = all[static_cast<size_t>(to)];
    if (kind == Pooling::max) {
      y[to] = x[first_largest(x, inputs)];
      continue;
    }
    for (int64_t i : inputs) y[to] += x[i];
    y[to] /= divisor(kind, height, width, inputs.size());
  }
  return y;
}

Array pooling_diff(const Array& x, Pooling kind, int64_t height, int64_t width, const Window& w,
                   const Array& dy) {
  Array dx(x.dims);
  const auto all = windows(x, height, width, w);
  for (int64_t to = 0; to < dy.count(); ++to) {
    const auto& inputs = all[static_cast<size_t>(to)];
    if (kind == Pooling::max) {
      dx[first_largest(x, inputs)] += dy[to];
      continue;
    }
    for (int64_t i : inputs) dx[i] += dy[to] / divisor(kind, height, width, inputs.size());
  }
  return dx;
}

Statistics statistics(const Array& x) {
  const int64_t c = x.dim(1);
  const double count = static_cast<double>(x.count() / c);
  Statistics s{Array({c}), Array({c})};
  by_channel(x, [&](int64_t k, int64_t i) { s.mean[k] += x[i] / count; });
  by_channel(x, [&](int64_t k, int64_t i) {
    s.variance[k] += (x[i] - s.mean[k]) * (x[i] - s.mean[k]) / count;
  });
  return s;
}

Array batch_normalization(const Array& x, const Array& scale, const Array& shift,
                          const Statistics& s, double epsilon) {
  Array y(x.dims);
  by_channel(x, [&](int64_t k, int64_t i) {
    y[i] = scale[k] * (x[i] - s.mean[k]) / std::sqrt(s.variance[k] + epsilon) + shift[k];
  });
  return y;
}

BatchNormalizationDiff batch_normalization_diff(const Array& x, const Array& scale,
                                                const Statistics& s, double epsilon,
                                                bool through_statistics, const Array& dy) {
  const int64_t c = x.dim(1);
  const double count = static_cast<double>(x.count() / c);
  BatchNormalizationDiff d{Array(x.dims), Array({c}), Array({c})};
  Array diff_mean({c}), diff_variance({c});
  by_channel(x, [&](int64_t k, int64_t i) {
    const double deviation = std::sqrt(s.variance[k] + epsilon);
    d.scale[k] += dy[i] * (x[i] - s.mean[k]) / deviation;
    d.shift[k] += dy[i];
    d.x[i] = dy[i] * scale[k] / deviation;
    diff_mean[k] -= dy[i] * scale[k] / deviation;
    diff_variance[k] -=
        0.5 * dy[i] * scale[k] * (x[i] - s.mean[k]) / (deviation * deviation * deviation);
  });
  if (through_statistics) {
    by_channel(x, [&](int64_t k, int64_t i) {
      d.x[i] += diff_mean[k] / count + diff_variance[k] * 2 * (x[i] - s.mean[k]) / count;
    });
  }
  return d;
}

Array fully_connected(const Array& x, const Array& weights, const Array& bias) {
  const int64_t n = x.dim(0), o = weights.dim(0), width = weights.dim(1);
  Array y({n, o});
  for (int64_t r = 0; r < n; ++r) {
    for (int64_t u = 0; u < o; ++u) {
      double& total = y[r * o + u];
      for (int64_t i = 0; i < width; ++i) total += weights[u * width + i] * x[r * width + i];
      if (bias.count() > 0) total += bias[u];
    }
  }
  return y;
}

Array fully_connected_diff_x(const Array& x, const Array& weights, const Array& dy) {
  const int64_t n = x.dim(0), o = weights.dim(0), width = weights.dim(1);
  Array dx(x.dims);
  for (int64_t r = 0; r < n; ++r) {
    for (int64_t u = 0; u < o; ++u) {
      for (int64_t i = 0; i < width; ++i) {
        dx[r * width + i] += weights[u * width + i] * dy[r * o + u];
      }
    }
  }
  return dx;
}

Array fully_connected_diff_weights(const Array& x, const Array& weights, const Array& dy) {
  const int64_t n = x.dim(0), o = weights.dim(0), width = weights.dim(1);
  Array dw(weights.dims);
  for (int64_t r = 0; r < n; ++r) {
    for (int64_t u = 0; u < o; ++u) {
      for (int64_t i = 0; i < width; ++i) dw[u * width + i] += x[r * width + i] * dy[r * o + u];
    }
  }
  return dw;
}

Array fully_connected_diff_bias(const Array& dy) {
  Array db({dy.dim(1)});
  for (int64_t i = 0; i < dy.count(); ++i) db[i % dy.dim(1)] += dy[i];
  return db;
}

Array relu(const Array& x) {
  Array y(x.dims);
  for (int64_t i = 0; i < x.count(); ++i) y[i] = x[i] > 0 ? x[i] : 0;
  return y;
}

Array relu_diff(const Array& x, const Array& dy) {
  Array dx(x.dims);
  for (int64_t i = 0; i < x.count(); ++i) dx[i] = x[i] > 0 ? dy[i] : 0;
  return dx;
}

Array addition(const std::vector<Array>& terms) {
  Array y(terms.front().dims);
  for (const Array& term : terms) {
    for (int64_t i = 0; i < y.count(); ++i) y[i] += term[i];
  }
  return y;
}

namespace {

// Calls visit(part, index in the part, index in the whole).
template <class Visit>
void each_part(const std::vector<Array>& parts, int axis, Visit visit) {
  int64_t total = 0;
  for (const Array& part : parts) total += part.dim(axis);
  int64_t inner = 1;
  for (size_t a = static_cast<size_t>(axis) + 1; a < parts[0].dims.size(); ++a) {
    inner *= parts[0].dims[a];
  }
  int64_t before = 0;
  for (size_t k = 0; k < parts.size(); ++k) {
    const int64_t extent = parts[k].dim(axis);
    for (int64_t i = 0; i < parts[k].count(); ++i) {
      const int64_t outer = i / (extent * inner), along = i / inner % extent;
      visit(k, i, (outer * total + before + along) * inner + i % inner);
    }
    before += extent;
  }
}

}  // namespace

Array concatenation(const std::vector<Array>& parts, int axis) {
  std::vector<int64_t> dims = parts[0].dims;
  for (size_t k = 1; k < parts.size(); ++k) dims[static_cast<size_t>(axis)] += parts[k].dim(axis);
  Array y(dims);
  each_part(parts, axis, [&](size_t k, int64_t from, int64_t to) { y[to] = parts[k][from]; });
  return y;
}

std::vector<Array> concatenation_diff(const std::vector<Array>& parts, int axis, const Array& dy) {
  std::vector<Array> d = parts;
  each_part(parts, axis, [&](size_t k, int64_t from, int64_t to) { d[k][from] = dy[to]; });
  return d;
}

namespace {

// Calls visit with the indices of the channels of one observation and position.
template <class Visit>
void columns(const Array& x, Visit visit) {
  const int64_t n = x.dim(0), c = x.dim(1), space = x.count() / (n * c);
  std::vector<int64_t> indices(static_cast<size_t>(c));
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t s = 0; s < space; ++s) {
      for (int64_t k = 0; k < c; ++k) indices[static_cast<size_t>(k)] = (i * c + k) * space + s;
      visit(indices);
    }
  }
}

}  // namespace

Array softmax(const Array& x) {
  Array y(x.dims);
  columns(x, [&](const std::vector<int64_t>& indices) {
    double top = x[indices[0]], total = 0;
    for (int64_t i : indices) top = std::max(top, x[i]);
    for (int64_t i : indices) total += std::exp(x[i] - top);
    for (int64_t i : indices) y[i] = std::exp(x[i] - top) / total;
  });
  return y;
}

Array softmax_diff(const Array& x, const Array& dy) {
  const Array y = softmax(x);
  Array dx(x.dims);
  columns(x, [&](const std::vector<int64_t>& indices) {
    double weighted = 0;
    for (int64_t i : indices) weighted += dy[i] * y[i];
    for (int64_t i : indices) dx[i] = y[i] * (dy[i] - weighted);
  });
  return dx;
}

Array cross_entropy(const Array& probabilities, const Array& labels) {
  Array loss({probabilities.dim(0)});
  for (int64_t n = 0; n < loss.count(); ++n) {
    const auto label = static_cast<int64_t>(labels[n]);
    loss[n] = -std::log(probabilities[n * probabilities.dim(1) + label]);
  }
  return loss;
}

Array cross_entropy_diff(const Array& probabilities, const Array& labels, const Array& dy) {
  Array d(probabilities.dims);
  for (int64_t n = 0; n < dy.count(); ++n) {
    const int64_t i = n * probabilities.dim(1) + static_cast<int64_t>(labels[n]);
    d[i] = -dy[n] / probabilities[i];
  }
  return d;
}

Array shared_cross_entropy(const Array& probabilities, const Array& shares) {
  Array loss({probabilities.dim(0)});
  for (int64_t i = 0; i < shares.count(); ++i) {
    loss[i / shares.dim(1)] -= shares[i] * std::log(probabilities[i]);
  }
  return loss;
}

Array shared_cross_entropy_diff(const Array& probabilities, const Array& shares, const Array& dy) {
  Array d(probabilities.dims);
  for (int64_t i = 0; i < d.count(); ++i) {
    d[i] = -dy[i / d.dim(1)] * shares[i] / probabilities[i];
  }
  return d;
}

Array shared_cross_entropy_diff_shares(const Array& probabilities, const Array& dy) {
  Array d(probabilities.dims);
  for (int64_t i = 0; i < d.count(); ++i) d[i] = -dy[i / d.dim(1)] * std::log(probabilities[i]);
  return d;
}

Array softmax_cross_entropy(const Array& logits, const Array& labels) {
  const int64_t classes = logits.dim(1);
  Array loss({logits.dim(0)});
  for (int64_t n = 0; n < loss.count(); ++n) {
    const int64_t label = n * classes + static_cast<int64_t>(labels[n]);
    double top = logits[label], total = 0;
    for (int64_t c = 0; c < classes; ++c) top = std::max(top, logits[n * classes + c]);
    for (int64_t c = 0; c < classes; ++c) total += std::exp(logits[n * classes + c] - top);
    loss[n] = std::log(total) + top - logits[label];
  }
  return loss;
}

Array softmax_cross_entropy_diff(const Array& logits, const Array& labels, const Array& dy) {
  Array d = softmax(logits);
  const int64_t classes = logits.dim(1);
  for (int64_t n = 0; n < dy.count(); ++n) {
    d[n * classes + static_cast<int64_t>(labels[n])] -= 1;
    for (int64_t c = 0; c < classes; ++c) d[n * classes + c] *= dy[n];
  }
  return d;
}

Array mean_squared_error(const Array& prediction, const Array& target) {
  Array loss({prediction.dim(0)});
  const int64_t each = prediction.count() / loss.count();
  for (int64_t i = 0; i < prediction.count(); ++i) {
    const double d = prediction[i] - target[i];
    loss[i / each] += d * d / static_cast<double>(each);
  }
  return loss;
}

Array mean_squared_error_diff(const Array& prediction, const Array& target, const Array& dy) {
  Array d(prediction.dims);
  const int64_t each = prediction.count() / dy.count();
  for (int64_t i = 0; i < d.count(); ++i) {
    d[i] = 2 * (prediction[i] - target[i]) * dy[i / each] / static_cast<double>(each);
  }
  return d;
}

Array sum(const Array& x, double factor) {
  Array y(std::vector<int64_t>{});
  for (double value : x.values) y[0] += factor * value;
  return y;
}

Array normalize_images(const Array& x, const Array& offset, const Array& factor) {
  Array y(x.dims);
  by_channel(x, [&](int64_t k, int64_t i) { y[i] = (x[i] - offset[k]) * factor[k]; });
  return y;
}

Array normalize_images_diff(const Array& x, const Array& factor, const Array& dy) {
  Array dx(x.dims);
  by_channel(x, [&](int64_t k, int64_t i) { dx[i] = dy[i] * factor[k]; });
  return dx;
}

}  // namespace lockstep::reference
