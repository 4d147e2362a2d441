// Recurrent layers. The reference goes through rows and steps one after another, in double.
#include <cmath>

#include "lockstep/engine/ops/op_makers.h"
#include "tests/engine/ops/cases.h"

namespace lockstep::optest {
namespace {

double logistic(double x) { return 1 / (1 + std::exp(-x)); }

enum class Cell { lstm, gru, gru_reset_before, rnn, rnn_relu };

int64_t gates_of(Cell cell) {
  return cell == Cell::lstm ? 4 : cell == Cell::gru || cell == Cell::gru_reset_before ? 3 : 1;
}

// By operand of the op.
struct CellNumbers {
  size_t recurrent_bias = 0, h0 = 5, c0 = 0;
  explicit CellNumbers(Cell cell) {
    if (cell == Cell::lstm) c0 = 6;
    if (gates_of(cell) == 3) {
      recurrent_bias = 5;
      h0 = 6;
    }
  }
};

// The values of a row's step, and what they were computed from.
struct Step {
  int64_t time = 0;
  std::vector<double> h0, c0, h, c, gates, inner;  // inner: what the reset gate of gru scales
};

class Network {
 public:
  Network(Cell cell, bool reverse, const std::vector<Array>& in)
      : cell_(cell), reverse_(reverse), in_(in), at_(cell) {}

  int64_t hidden() const { return in_[3].dim(1); }
  int64_t channels() const { return in_[0].dim(2); }
  int64_t capacity() const { return in_[0].dim(1); }

  std::vector<Step> steps_of(int64_t row) const {
    std::vector<Step> steps;
    std::vector<double> h = state(at_.h0, row), c = h;
    if (at_.c0 > 0) c = state(at_.c0, row);
    const auto length = static_cast<int64_t>(in_[1][row]);
    for (int64_t k = 0; k < length; ++k) {
      Step s;
      s.time = reverse_ ? length - 1 - k : k;
      s.h0 = h;
      s.c0 = c;
      compute(row, s);
      h = s.h;
      c = s.c;
      steps.push_back(s);
    }
    return steps;
  }

  std::vector<double> state(size_t operand, int64_t row) const {
    std::vector<double> values;
    for (int64_t j = 0; j < hidden(); ++j) values.push_back(in_[operand][row * hidden() + j]);
    return values;
  }

  // Adds the gradients of a step to `diffs`. dh, dc: with respect to its h and c; become those with
  // respect to the ones before.
  void differentiate(int64_t row, const Step& s, std::vector<double>& dh, std::vector<double>& dc,
                     std::vector<Array>& diffs) const {
    const auto n = static_cast<size_t>(hidden());
    // With respect to the arguments of gates, from x and from h, and to the h that is multiplied.
    std::vector<double> d(s.gates.size()), du(s.gates.size()), before(n);
    const auto gate = [&](size_t k, size_t j) { return s.gates[k * n + j]; };
    for (size_t j = 0; j < n; ++j) {
      if (cell_ == Cell::lstm) {
        const double i = gate(0, j), f = gate(1, j), g = gate(2, j), o = gate(3, j),
                     t = std::tanh(s.c[j]);
        dc[j] += dh[j] * o * (1 - t * t);
        d[j] = dc[j] * g * i * (1 - i);
        d[n + j] = dc[j] * s.c0[j] * f * (1 - f);
        d[2 * n + j] = dc[j] * i * (1 - g * g);
        d[3 * n + j] = dh[j] * t * o * (1 - o);
        dc[j] *= f;
      } else if (gates_of(cell_) == 3) {
        const double r = gate(0, j), z = gate(1, j), next = gate(2, j);
        d[n + j] = dh[j] * (s.h0[j] - next) * z * (1 - z);
        d[2 * n + j] = dh[j] * (1 - z) * (1 - next * next);
        before[j] = dh[j] * z;
        d[j] = d[2 * n + j] * s.inner[j] * r * (1 - r);  // of reset_after
      } else {
        d[j] = dh[j] * (cell_ == Cell::rnn ? 1 - s.h[j] * s.h[j] : s.h[j] > 0 ? 1 : 0);
      }
    }
    du = d;
    if (cell_ == Cell::gru) {
      for (size_t j = 0; j < n; ++j) du[2 * n + j] *= gate(0, j);
    }
    if (cell_ == Cell::gru_reset_before) {
      for (size_t j = 0; j < n; ++j) {
        double scaled = 0;
        for (size_t k = 0; k < n; ++k) scaled += d[2 * n + k] * weight(3, 2 * n + k, j);
        const double r = gate(0, j);
        d[j] = du[j] = scaled * s.h0[j] * r * (1 - r);
        before[j] += scaled * r;
      }
    }
    const auto c = static_cast<size_t>(channels());
    for (size_t g = 0; g < d.size(); ++g) {
      const bool scaled = cell_ == Cell::gru_reset_before && g >= 2 * n;
      diffs[4].values[g] += d[g];
      if (at_.recurrent_bias > 0) diffs[at_.recurrent_bias].values[g] += du[g];
      for (size_t k = 0; k < c; ++k) {
        diffs[2].values[g * c + k] += d[g] * x(row, s.time, k);
        diffs[0].values[x_index(row, s.time, k)] += d[g] * weight(2, g, k);
      }
      for (size_t k = 0; k < n; ++k) {
        diffs[3].values[g * n + k] += du[g] * (scaled ? gate(0, k) * s.h0[k] : s.h0[k]);
        if (!scaled) before[k] += du[g] * weight(3, g, k);
      }
    }
    dh = before;
  }

 private:
  size_t x_index(int64_t row, int64_t time, size_t k) const {
    return static_cast<size_t>((row * capacity() + time) * channels()) + k;
  }
  double x(int64_t row, int64_t time, size_t k) const {
    return in_[0].values[x_index(row, time, k)];
  }
  double weight(size_t operand, size_t row, size_t column) const {
    return in_[operand].values[row * static_cast<size_t>(in_[operand].dim(1)) + column];
  }

  void compute(int64_t row, Step& s) const {
    const auto n = static_cast<size_t>(hidden());
    const auto count = n * static_cast<size_t>(gates_of(cell_));
    std::vector<double> from_x(count), from_h(count);
    const auto multiply = [&](size_t g, const std::vector<double>& h) {
      from_h[g] = at_.recurrent_bias > 0 ? in_[at_.recurrent_bias].values[g] : 0;
      for (size_t k = 0; k < n; ++k) from_h[g] += weight(3, g, k) * h[k];
    };
    for (size_t g = 0; g < count; ++g) {
      from_x[g] = in_[4].values[g];
      for (size_t k = 0; k < static_cast<size_t>(channels()); ++k) {
        from_x[g] += weight(2, g, k) * x(row, s.time, k);
      }
      multiply(g, s.h0);
    }
    s.gates.resize(count);
    s.h.resize(n);
    s.c.resize(n);
    s.inner.resize(n);
    const auto argument = [&](size_t k, size_t j) { return from_x[k * n + j] + from_h[k * n + j]; };
    if (gates_of(cell_) == 3) {
      std::vector<double> scaled(n);
      for (size_t j = 0; j < n; ++j) {
        s.gates[j] = logistic(argument(0, j));
        s.gates[n + j] = logistic(argument(1, j));
        scaled[j] = s.gates[j] * s.h0[j];
      }
      for (size_t j = 0; j < n; ++j) {
        if (cell_ == Cell::gru_reset_before) multiply(2 * n + j, scaled);
        s.inner[j] = from_h[2 * n + j];
        const double r = cell_ == Cell::gru ? s.gates[j] : 1, z = s.gates[n + j];
        const double next = std::tanh(from_x[2 * n + j] + r * s.inner[j]);
        s.gates[2 * n + j] = next;
        s.h[j] = (1 - z) * next + z * s.h0[j];
      }
      return;
    }
    for (size_t j = 0; j < n; ++j) {
      if (cell_ == Cell::lstm) {
        for (const size_t k : {0u, 1u, 3u}) s.gates[k * n + j] = logistic(argument(k, j));
        s.gates[2 * n + j] = std::tanh(argument(2, j));
        s.c[j] = s.gates[n + j] * s.c0[j] + s.gates[j] * s.gates[2 * n + j];
        s.h[j] = s.gates[3 * n + j] * std::tanh(s.c[j]);
      } else {
        const double a = argument(0, j);
        s.h[j] = cell_ == Cell::rnn ? std::tanh(a) : std::max(0.0, a);
      }
    }
  }

  Cell cell_;
  bool reverse_;
  const std::vector<Array>& in_;
  CellNumbers at_;
};

std::vector<Array> forward_of(Cell cell, bool reverse, const std::vector<Array>& in) {
  const Network network(cell, reverse, in);
  const int64_t rows = in[0].dim(0), n = network.hidden();
  std::vector<Array> out{Array({rows, network.capacity(), n}), Array({rows, n})};
  if (cell == Cell::lstm) out.push_back(Array({rows, n}));
  const CellNumbers at(cell);
  for (int64_t row = 0; row < rows; ++row) {
    std::vector<double> h = network.state(at.h0, row), c = h;
    if (at.c0 > 0) c = network.state(at.c0, row);
    for (const Step& s : network.steps_of(row)) {
      h = s.h;
      c = s.c;
      for (int64_t j = 0; j < n; ++j) {
        out[0][(row * network.capacity() + s.time) * n + j] = h[static_cast<size_t>(j)];
      }
    }
    for (int64_t j = 0; j < n; ++j) {
      out[1][row * n + j] = h[static_cast<size_t>(j)];
      if (cell == Cell::lstm) out[2][row * n + j] = c[static_cast<size_t>(j)];
    }
  }
  return out;
}

std::vector<Array> backward_of(Cell cell, bool reverse, const std::vector<Array>& in,
                               const Array& dy) {
  const Network network(cell, reverse, in);
  const int64_t rows = in[0].dim(0), n = network.hidden();
  std::vector<Array> diffs;
  for (const Array& array : in) diffs.push_back(Array(array.dims));
  const CellNumbers at(cell);
  for (int64_t row = 0; row < rows; ++row) {
    std::vector<double> dh(static_cast<size_t>(n)), dc = dh;
    const std::vector<Step> steps = network.steps_of(row);
    for (size_t k = steps.size(); k-- > 0;) {
      for (int64_t j = 0; j < n; ++j) {
        dh[static_cast<size_t>(j)] += dy[(row * network.capacity() + steps[k].time) * n + j];
      }
      network.differentiate(row, steps[k], dh, dc, diffs);
    }
    for (int64_t j = 0; j < n; ++j) {
      diffs[at.h0][row * n + j] = dh[static_cast<size_t>(j)];
      if (at.c0 > 0) diffs[at.c0][row * n + j] = dc[static_cast<size_t>(j)];
    }
  }
  diffs[1] = Array();  // of the lengths
  return diffs;
}

OpPtr op_of(Cell cell, bool reverse) {
  switch (cell) {
    case Cell::lstm:
      return ops::make_lstm({.reverse = reverse});
    case Cell::gru:
    case Cell::gru_reset_before:
      return ops::make_gru({.reset_after = cell == Cell::gru, .reverse = reverse});
    case Cell::rnn:
      break;
    case Cell::rnn_relu:
      return ops::make_rnn({.activation = ops::RnnActivation::relu, .reverse = reverse});
  }
  return ops::make_rnn({.reverse = reverse});
}

Case recurrent(const std::string& name, Cell cell, bool reverse,
               const std::vector<int64_t>& lengths, int64_t capacity, int64_t channels,
               int64_t hidden) {
  const auto rows = static_cast<int64_t>(lengths.size());
  const int64_t gates = gates_of(cell) * hidden;
  const double size = 1 / std::sqrt(static_cast<double>(std::max(hidden, channels)));
  Array of_lengths({rows});
  for (int64_t i = 0; i < rows; ++i) {
    of_lengths[i] = static_cast<double>(lengths[static_cast<size_t>(i)]);
  }
  Case c;
  c.name = name + (reverse ? "_reverse" : "");
  c.op = op_of(cell, reverse);
  c.inputs = {{random_array({rows, capacity, channels}, 200)},
              {of_lengths, DType::i32, false},
              {random_array({gates, channels}, 201, -2 * size, 2 * size)},
              {random_array({gates, hidden}, 202, -2 * size, 2 * size)},
              {random_array({gates}, 203)}};
  if (gates_of(cell) == 3) c.inputs.push_back({random_array({gates}, 204)});
  c.inputs.push_back({random_array({rows, hidden}, 205)});
  if (cell == Cell::lstm) c.inputs.push_back({random_array({rows, hidden}, 206)});
  c.forward = [=](const std::vector<Array>& in) { return forward_of(cell, reverse, in); };
  c.backward = [=](const std::vector<Array>& in, const Array& dy) {
    return backward_of(cell, reverse, in, dy);
  };
  c.smooth = cell != Cell::rnn_relu;
  return c;
}

}  // namespace

std::vector<Case> recurrent_cases() {
  struct Row {
    std::string name;
    std::vector<int64_t> lengths;
    int64_t capacity, channels, hidden;
  };
  const std::vector<Row> rows = {
      {"one_step", {1}, 1, 1, 1},
      {"without_steps", {0, 0, 0}, 4, 3, 5},
      {"mixed", {3, 0, 5, 1, 5, 2, 4}, 5, 3, 4},
      {"beyond_the_longest", {2, 1, 3}, 6, 2, 5},
      {"vectors_and_a_rest", {2, 4, 0, 4, 3, 1, 4, 2}, 4, 9, 37},
  };
  std::vector<Case> cases;
  for (const Row& row : rows) {
    for (const bool reverse : {false, true}) {
      const auto add = [&](const char* kind, Cell cell) {
        cases.push_back(recurrent(row.name + kind, cell, reverse, row.lengths, row.capacity,
                                  row.channels, row.hidden));
      };
      add("", Cell::lstm);
      add("", Cell::gru);
      add("_reset_before", Cell::gru_reset_before);
      add("", Cell::rnn);
      add("_relu", Cell::rnn_relu);
    }
  }
  // More terms than a block of a sum has, for a product and for a gradient.
  cases.push_back(recurrent("long", Cell::lstm, false, {130, 20, 200}, 200, 2, 3));
  cases.back().smooth = false;  // many ops
  cases.push_back(recurrent("wide", Cell::lstm, true, {2, 3}, 3, 260, 70));
  cases.push_back(recurrent("wide", Cell::gru, false, {2, 3}, 3, 40, 280));
  cases.push_back(recurrent("many_rows", Cell::gru_reset_before, false,
                            std::vector<int64_t>(140, 2), 2, 3, 20));
  return cases;
}

}  // namespace lockstep::optest
