// Recurrent layers. A thread computes a unit of a row, step after step, or an element of a gradient
// with the order of additions of the CPU's products, so the bits are the CPU's.
#include <limits>
#include <utility>

#include "lockstep/engine/kernels/cuda/launch.h"
#include "lockstep/engine/kernels/cuda/passes.h"
#include "lockstep/engine/kernels/recurrent/cells.h"
#include "lockstep/engine/kernels/recurrent/operands.h"
#include "lockstep/engine/kernels/recurrent/recurrent.h"

namespace lockstep::kernels::cuda {
namespace {

// Sizes, and which steps are valid. Arrays by step are rows x steps x ....
struct Sequence {
  int64_t rows, steps, inputs, hidden, gates;  // gates: numbers of all gates of a row
  RecurrentCell cell;
  bool reverse, reset_after, relu;
  const int32_t* lengths;

  __device__ bool is_outside(int64_t row) const { return lengths[row] < 0 || lengths[row] > steps; }
  __device__ int64_t length(int64_t row) const { return is_outside(row) ? 0 : lengths[row]; }
  __device__ int64_t time(int64_t row, int64_t step) const {
    return reverse ? length(row) - 1 - step : step;
  }
  // The number of a row's step number `step`, of all rows x steps.
  __device__ int64_t at(int64_t row, int64_t step) const { return row * steps + time(row, step); }
  // h (c) before a step, from those of all steps and the first one.
  __device__ const float* before(const float* all, const float* first, int64_t row,
                                 int64_t step) const {
    return (step == 0 ? first + row * hidden : all + at(row, step - 1) * hidden);
  }
  bool resets_before() const { return cell == RecurrentCell::gru && !reset_after; }
  int64_t kept_gates() const { return cell == RecurrentCell::rnn ? 0 : gates; }
  int64_t kept_more() const { return cell == RecurrentCell::rnn || resets_before() ? 0 : hidden; }
  int64_t most() const { return rows * steps; }
  size_t kept_bytes() const {
    return static_cast<size_t>(most() * (kept_gates() + kept_more())) * sizeof(float);
  }
};

// A sum of products in the order of the CPU (cpu/matrices/products.h).
class BlockSum {
 public:
  __device__ void add(float a, float b) {
    if (count_ == kTerms) {
      total_ = value();
      begun_ = true;
      sum_ = 0;
      count_ = 0;
    }
    sum_ = fused(a, b, sum_);
    ++count_;
  }
  __device__ float value() const { return begun_ ? total_ + sum_ : sum_; }

 private:
  static constexpr int kTerms = 256;
  float total_ = 0, sum_ = 0;
  int count_ = 0;
  bool begun_ = false;
};

__device__ float product_of_rows(const float* a, const float* b, int64_t terms,
                                 int64_t b_step = 1) {
  BlockSum sum;
  for (int64_t k = 0; k < terms; ++k) sum.add(a[k], b[k * b_step]);
  return sum.value();
}

// ---- forward ----

struct Arguments {
  Sequence s;
  const float *x, *weights, *bias;
  float* gates;
  __device__ void operator()(int64_t n) const {
    const Division gate = divide(n, s.gates), step = divide(gate.quotient, s.steps);
    if (step.remainder >= s.length(step.quotient)) return;
    gates[n] = product_of_rows(x + gate.quotient * s.inputs, weights + gate.remainder * s.inputs,
                               s.inputs) +
               bias[gate.remainder];
  }
};

// The operands of a step's kernels.
struct StepForward {
  Sequence s;
  int64_t step;
  const float *recurrent, *recurrent_bias, *h0, *c0;
  float *gates, *more, *y, *scaled;  // scaled: r h, by row

  // The recurrent part of gate `gate` of unit j.
  __device__ float part(int64_t gate, int64_t j, const float* h) const {
    return product_of_rows(h, recurrent + (gate * s.hidden + j) * s.hidden, s.hidden);
  }
  __device__ float with_bias(int64_t gate, int64_t j, const float* h) const {
    return part(gate, j, h) + recurrent_bias[gate * s.hidden + j];
  }
};

struct LstmStep {
  StepForward f;
  __device__ void operator()(int64_t n) const {
    const Division element = divide(n, f.s.hidden);
    const int64_t row = element.quotient, j = element.remainder, hidden = f.s.hidden;
    if (f.step >= f.s.length(row)) return;
    const int64_t at = f.s.at(row, f.step);
    const float* const h = f.s.before(f.y, f.h0, row, f.step);
    float* const gates = f.gates + at * f.s.gates + j;
    const LstmUnit unit(gates[0] + f.part(0, j, h), gates[hidden] + f.part(1, j, h),
                        gates[2 * hidden] + f.part(2, j, h), gates[3 * hidden] + f.part(3, j, h),
                        f.s.before(f.more, f.c0, row, f.step)[j]);
    gates[0] = unit.i;
    gates[hidden] = unit.f;
    gates[2 * hidden] = unit.g;
    gates[3 * hidden] = unit.o;
    f.more[at * hidden + j] = unit.c;
    f.y[at * hidden + j] = unit.h;
  }
};

struct GruStep {
  StepForward f;
  __device__ void operator()(int64_t n) const {
    const Division element = divide(n, f.s.hidden);
    const int64_t row = element.quotient, j = element.remainder, hidden = f.s.hidden;
    if (f.step >= f.s.length(row)) return;
    const int64_t at = f.s.at(row, f.step);
    const float* const h = f.s.before(f.y, f.h0, row, f.step);
    float* const gates = f.gates + at * f.s.gates + j;
    const float r = gate_sigmoid(gates[0] + f.with_bias(0, j, h)),
                z = gate_sigmoid(gates[hidden] + f.with_bias(1, j, h)), q = f.with_bias(2, j, h),
                next = gate_tanh(fused(r, q, gates[2 * hidden]));
    gates[0] = r;
    gates[hidden] = z;
    gates[2 * hidden] = next;
    f.more[at * hidden + j] = q;
    f.y[at * hidden + j] = gru_mix(z, next, h[j]);
  }
};

struct GruResetStep {
  StepForward f;
  __device__ void operator()(int64_t n) const {
    const Division element = divide(n, f.s.hidden);
    const int64_t row = element.quotient, j = element.remainder, hidden = f.s.hidden;
    if (f.step >= f.s.length(row)) return;
    const float* const h = f.s.before(f.y, f.h0, row, f.step);
    float* const gates = f.gates + f.s.at(row, f.step) * f.s.gates + j;
    const float r = gate_sigmoid(gates[0] + f.with_bias(0, j, h));
    gates[0] = r;
    gates[hidden] = gate_sigmoid(gates[hidden] + f.with_bias(1, j, h));
    f.scaled[n] = r * h[j];
  }
};

struct GruUpdateStep {
  StepForward f;
  __device__ void operator()(int64_t n) const {
    const Division element = divide(n, f.s.hidden);
    const int64_t row = element.quotient, j = element.remainder, hidden = f.s.hidden;
    if (f.step >= f.s.length(row)) return;
    const int64_t at = f.s.at(row, f.step);
    float* const gates = f.gates + at * f.s.gates + j;
    const float next = gate_tanh(gates[2 * hidden] + f.with_bias(2, j, f.scaled + row * hidden));
    gates[2 * hidden] = next;
    f.y[at * hidden + j] = gru_mix(gates[hidden], next, f.s.before(f.y, f.h0, row, f.step)[j]);
  }
};

struct RnnStep {
  StepForward f;
  __device__ void operator()(int64_t n) const {
    const Division element = divide(n, f.s.hidden);
    const int64_t row = element.quotient, j = element.remainder;
    if (f.step >= f.s.length(row)) return;
    const int64_t at = f.s.at(row, f.step);
    const float* const h = f.s.before(f.y, f.h0, row, f.step);
    const float x = f.gates[at * f.s.gates + j] + f.part(0, j, h);
    f.y[at * f.s.hidden + j] = f.s.relu ? RnnRelu{}.value(x) : RnnTanh{}.value(x);
  }
};

// y where it is not valid.
struct Rest {
  Sequence s;
  float nothing;
  float* y;
  __device__ void operator()(int64_t n) const {
    const Division step = divide(n / s.hidden, s.steps);
    if (s.is_outside(step.quotient)) {
      y[n] = nothing;
    } else if (step.remainder >= s.length(step.quotient)) {
      y[n] = 0;
    }
  }
};

// The state after the last step.
struct LastState {
  Sequence s;
  float nothing;
  const float *all, *first;
  float* last;
  __device__ void operator()(int64_t n) const {
    const Division element = divide(n, s.hidden);
    const int64_t row = element.quotient;
    last[n] =
        s.is_outside(row) ? nothing : s.before(all, first, row, s.length(row))[element.remainder];
  }
};

// ---- backward ----

struct StepBackward {
  Sequence s;
  int64_t step;
  const float *recurrent, *h0, *c0, *y, *dy, *gates, *more;
  float *dh, *dc, *direct;  // by row
  float *d, *recurrent_d;   // by step
  float* scaled;            // by step: r h
};

struct LstmBack {
  StepBackward b;
  __device__ void operator()(int64_t n) const {
    const Division element = divide(n, b.s.hidden);
    const int64_t row = element.quotient, j = element.remainder, hidden = b.s.hidden;
    if (b.step >= b.s.length(row)) return;
    const int64_t at = b.s.at(row, b.step);
    const float* const gates = b.gates + at * b.s.gates + j;
    const LstmDiffs diffs(gates[0], gates[hidden], gates[2 * hidden], gates[3 * hidden],
                          b.more[at * hidden + j], b.s.before(b.more, b.c0, row, b.step)[j],
                          b.dh[n] + b.dy[at * hidden + j], b.dc[n]);
    float* const d = b.d + at * b.s.gates + j;
    d[0] = diffs.i;
    d[hidden] = diffs.f;
    d[2 * hidden] = diffs.g;
    d[3 * hidden] = diffs.o;
    b.dc[n] = diffs.c0;
  }
};

// Of a gru, what does not depend on where the reset is.
struct GruBack {
  StepBackward b;
  __device__ void operator()(int64_t n) const {
    const Division element = divide(n, b.s.hidden);
    const int64_t row = element.quotient, j = element.remainder, hidden = b.s.hidden;
    if (b.step >= b.s.length(row)) return;
    const int64_t at = b.s.at(row, b.step);
    const float* const gates = b.gates + at * b.s.gates + j;
    const float r = gates[0], h = b.s.before(b.y, b.h0, row, b.step)[j];
    const GruMixDiffs diffs(gates[hidden], gates[2 * hidden], h, b.dh[n] + b.dy[at * hidden + j]);
    float *const d = b.d + at * b.s.gates + j, *const du = b.recurrent_d + at * b.s.gates + j;
    d[hidden] = du[hidden] = diffs.z;
    d[2 * hidden] = diffs.n;
    b.direct[n] = diffs.h;
    if (!b.s.reset_after) {
      du[2 * hidden] = diffs.n;
      b.scaled[at * hidden + j] = r * h;
      return;
    }
    d[0] = du[0] = diffs.n * b.more[at * hidden + j] * sigmoid_slope(r);
    du[2 * hidden] = diffs.n * r;
  }
};

// With respect to r h, then to r.
struct GruScaledBack {
  StepBackward b;
  __device__ void operator()(int64_t n) const {
    const Division element = divide(n, b.s.hidden);
    const int64_t row = element.quotient, j = element.remainder, hidden = b.s.hidden;
    if (b.step >= b.s.length(row)) return;
    const int64_t at = b.s.at(row, b.step);
    const float scaled = product_of_rows(b.recurrent_d + at * b.s.gates + 2 * hidden,
                                         b.recurrent + 2 * hidden * hidden + j, hidden, hidden);
    const float r = b.gates[at * b.s.gates + j];
    b.d[at * b.s.gates + j] = b.recurrent_d[at * b.s.gates + j] =
        scaled * b.s.before(b.y, b.h0, row, b.step)[j] * sigmoid_slope(r);
    b.direct[n] = fused(scaled, r, b.direct[n]);
  }
};

struct RnnBack {
  StepBackward b;
  __device__ void operator()(int64_t n) const {
    const Division element = divide(n, b.s.hidden);
    if (b.step >= b.s.length(element.quotient)) return;
    const int64_t at = b.s.at(element.quotient, b.step) * b.s.hidden + element.remainder;
    const float slope = b.s.relu ? RnnRelu{}.slope(b.y[at]) : RnnTanh{}.slope(b.y[at]);
    b.d[at] = (b.dh[n] + b.dy[at]) * slope;
  }
};

// With respect to h before the step, through the product of the first `terms` gates.
struct ThroughProduct {
  StepBackward b;
  int64_t terms;
  __device__ void operator()(int64_t n) const {
    const Division element = divide(n, b.s.hidden);
    if (b.step >= b.s.length(element.quotient)) return;
    const float* const d = b.recurrent_d + b.s.at(element.quotient, b.step) * b.s.gates;
    const float sum = product_of_rows(d, b.recurrent + element.remainder, terms, b.s.hidden);
    b.dh[n] = b.direct ? sum + b.direct[n] : sum;
  }
};

struct GradientOfX {
  Sequence s;
  const float *d, *weights;
  float* dx;
  __device__ void operator()(int64_t n) const {
    const Division channel = divide(n, s.inputs), step = divide(channel.quotient, s.steps);
    const bool valid = step.remainder < s.length(step.quotient);
    dx[n] = valid ? product_of_rows(d + channel.quotient * s.gates, weights + channel.remainder,
                                    s.gates, s.inputs)
                  : 0.0f;
  }
};

// Sums over the valid steps of derivatives of gates times x.
struct GradientOfWeights {
  Sequence s;
  const float *d, *x;
  float* dweights;
  __device__ void operator()(int64_t n) const {
    const Division element = divide(n, s.inputs);
    BlockSum sum;
    for (int64_t row = 0; row < s.rows; ++row) {
      for (int64_t t = 0; t < s.length(row); ++t) {
        const int64_t at = row * s.steps + t;
        sum.add(d[at * s.gates + element.quotient], x[at * s.inputs + element.remainder]);
      }
    }
    dweights[n] = sum.value();
  }
};

// The same with the state before each step, for gates from first_gate on; or with `scaled`, if it
// is not null.
struct GradientOfRecurrent {
  Sequence s;
  int64_t first;
  const float *d, *y, *h0, *scaled;
  float* dweights;
  __device__ void operator()(int64_t n) const {
    const Division element = divide(n, s.hidden);
    BlockSum sum;
    for (int64_t row = 0; row < s.rows; ++row) {
      const int64_t length = s.length(row);
      for (int64_t t = 0; t < length; ++t) {
        const int64_t at = row * s.steps + t, step = s.reverse ? length - 1 - t : t;
        const float* const of = scaled ? scaled + at * s.hidden : s.before(y, h0, row, step);
        sum.add(d[at * s.gates + first + element.quotient], of[element.remainder]);
      }
    }
    dweights[first * s.hidden + n] = sum.value();
  }
};

struct GradientOfBias {
  Sequence s;
  const float* d;
  float* dbias;
  __device__ void operator()(int64_t n) const {
    double sum = 0;
    for (int64_t row = 0; row < s.rows; ++row) {
      for (int64_t t = 0; t < s.length(row); ++t) {
        sum += static_cast<double>(d[(row * s.steps + t) * s.gates + n]);
      }
    }
    dbias[n] = static_cast<float>(sum);
  }
};

// ---- passes ----

void forward(Sequence s, const Bound& b) {
  const bool gru = s.cell == RecurrentCell::gru, lstm = s.cell == RecurrentCell::lstm;
  constexpr float nothing = std::numeric_limits<float>::quiet_NaN();
  int read = 4;
  StepForward f{.s = s,
                .step = 0,
                .recurrent = b.in(2),
                .recurrent_bias = nullptr,
                .h0 = nullptr,
                .c0 = nullptr,
                .gates = nullptr,
                .more = nullptr,
                .y = b.out(0),
                .scaled = nullptr};
  if (gru) f.recurrent_bias = b.in(read++);
  f.h0 = b.in(read++);
  if (lstm) f.c0 = b.in(read++);
  f.s.lengths = b.in<int32_t>(read);
  auto* const scratch = static_cast<float*>(b.scratch);
  f.gates = s.kept_bytes() > 0 ? b.out(lstm ? 3 : 2) : scratch;
  if (s.kept_more() > 0) f.more = f.gates + s.most() * s.kept_gates();
  if (s.resets_before()) f.scaled = scratch;
  launch_each("recurrent, arguments", s.most() * s.gates, b.stream,
              Arguments{f.s, b.in(0), b.in(1), b.in(3), f.gates});
  const int64_t units = s.rows * s.hidden;
  for (; f.step < s.steps; ++f.step) {
    if (lstm) {
      launch_each("lstm", units, b.stream, LstmStep{f});
    } else if (s.resets_before()) {
      launch_each("gru, reset", units, b.stream, GruResetStep{f});
      launch_each("gru, update", units, b.stream, GruUpdateStep{f});
    } else if (gru) {
      launch_each("gru", units, b.stream, GruStep{f});
    } else {
      launch_each("rnn", units, b.stream, RnnStep{f});
    }
  }
  launch_each("recurrent, state", units, b.stream, LastState{f.s, nothing, f.y, f.h0, b.out(1)});
  if (lstm) {
    launch_each("recurrent, state", units, b.stream,
                LastState{f.s, nothing, f.more, f.c0, b.out(2)});
  }
  launch_each("recurrent, rest", s.most() * s.hidden, b.stream, Rest{f.s, nothing, f.y});
}

size_t forward_scratch(const Sequence& s) {
  if (s.resets_before()) return static_cast<size_t>(s.rows * s.hidden) * sizeof(float);
  return s.kept_gates() > 0 ? 0 : static_cast<size_t>(s.most() * s.gates) * sizeof(float);
}

// Arrays in the scratch memory of a backward pass.
struct BackwardArrays {
  float *d, *recurrent_d, *scaled, *dh, *dc, *direct;
  size_t bytes;
  BackwardArrays(const Sequence& s, void* scratch) {
    const bool gru = s.cell == RecurrentCell::gru;
    auto* next = static_cast<float*>(scratch);
    size_t floats = 0;
    const auto take = [&](bool needed, int64_t count) -> float* {
      if (!needed) return nullptr;
      float* const array = next ? next + floats : nullptr;
      floats += static_cast<size_t>(count);
      return array;
    };
    d = take(true, s.most() * s.gates);
    recurrent_d = gru ? take(true, s.most() * s.gates) : d;
    scaled = take(s.resets_before(), s.most() * s.hidden);
    dh = take(true, s.rows * s.hidden);
    dc = take(s.cell == RecurrentCell::lstm, s.rows * s.hidden);
    direct = take(gru, s.rows * s.hidden);
    bytes = floats * sizeof(float);
  }
};

void backward_step(const StepBackward& p, void* stream) {
  const int64_t units = p.s.rows * p.s.hidden;
  switch (p.s.cell) {
    case RecurrentCell::lstm:
      launch_each("lstm, backward", units, stream, LstmBack{p});
      break;
    case RecurrentCell::gru:
      launch_each("gru, backward", units, stream, GruBack{p});
      if (p.s.resets_before()) launch_each("gru, reset", units, stream, GruScaledBack{p});
      break;
    case RecurrentCell::rnn:
      launch_each("rnn, backward", units, stream, RnnBack{p});
      break;
  }
  launch_each("recurrent, product", units, stream,
              ThroughProduct{p, p.s.resets_before() ? 2 * p.s.hidden : p.s.gates});
}

void backward(Sequence s, const Bound& b) {
  const bool gru = s.cell == RecurrentCell::gru, lstm = s.cell == RecurrentCell::lstm;
  const BackwardArrays arrays(s, b.scratch);
  const size_t state_bytes = static_cast<size_t>(s.rows * s.hidden) * sizeof(float);
  int read = gru ? 5 : 4, write = 4;
  const float *const h0 = b.in(read++), *const c0 = lstm ? b.in(read++) : nullptr;
  s.lengths = b.in<int32_t>(read++);
  const float *const y = b.in(read++), *const dy = b.in(read++);
  launch_copy("recurrent, state", arrays.dh, b.in(read++), state_bytes, b.stream);
  if (lstm) launch_copy("recurrent, state", arrays.dc, b.in(read++), state_bytes, b.stream);
  const float* const gates = s.kept_bytes() > 0 ? b.in(read++) : nullptr;
  StepBackward p{.s = s,
                 .step = s.steps - 1,
                 .recurrent = b.in(2),
                 .h0 = h0,
                 .c0 = c0,
                 .y = y,
                 .dy = dy,
                 .gates = gates,
                 .more = s.kept_more() > 0 ? gates + s.most() * s.kept_gates() : nullptr,
                 .dh = arrays.dh,
                 .dc = arrays.dc,
                 .direct = arrays.direct,
                 .d = arrays.d,
                 .recurrent_d = arrays.recurrent_d,
                 .scaled = arrays.scaled};
  for (; p.step >= 0; --p.step) backward_step(p, b.stream);

  launch_each("recurrent, inputs", s.most() * s.inputs, b.stream,
              GradientOfX{s, arrays.d, b.in(1), b.out(0)});
  launch_each("recurrent, weights", s.gates * s.inputs, b.stream,
              GradientOfWeights{s, arrays.d, b.in(0), b.out(1)});
  const int64_t with_state = s.resets_before() ? 2 * s.hidden : s.gates;
  launch_each("recurrent, weights", with_state * s.hidden, b.stream,
              GradientOfRecurrent{s, 0, arrays.recurrent_d, y, h0, nullptr, b.out(2)});
  if (s.resets_before()) {
    launch_each(
        "recurrent, weights", s.hidden * s.hidden, b.stream,
        GradientOfRecurrent{s, with_state, arrays.recurrent_d, y, h0, arrays.scaled, b.out(2)});
  }
  launch_each("recurrent, bias", s.gates, b.stream, GradientOfBias{s, arrays.d, b.out(3)});
  if (gru) {
    launch_each("recurrent, bias", s.gates, b.stream,
                GradientOfBias{s, arrays.recurrent_d, b.out(write++)});
  }
  launch_copy("recurrent, state", b.out(write++), arrays.dh, state_bytes, b.stream);
  if (lstm) launch_copy("recurrent, state", b.out(write++), arrays.dc, state_bytes, b.stream);
}

}  // namespace

Kernel recurrent(const RecurrentProblem& p) {
  const Shape& x = p.x.shape;
  const Sequence s{.rows = x[0],
                   .steps = x[1],
                   .inputs = x[2],
                   .hidden = p.hidden,
                   .gates = gates_of(p.cell) * p.hidden,
                   .cell = p.cell,
                   .reverse = p.reverse,
                   .reset_after = p.reset_after,
                   .relu = p.relu,
                   .lengths = nullptr};
  RecurrentPasses passes(p, s.kept_bytes());
  Kernel kernel;
  kernel.rows_apart = true;
  kernel.forward = own_pass(
      std::move(passes.forward_reads), std::move(passes.forward_writes),
      [s](const Bound& b) { forward(s, b); }, forward_scratch(s));
  kernel.backward.push_back(own_pass(
      std::move(passes.backward_reads), std::move(passes.backward_writes),
      [s](const Bound& b) { backward(s, b); }, BackwardArrays(s, nullptr).bytes));
  return kernel;
}

}  // namespace lockstep::kernels::cuda
