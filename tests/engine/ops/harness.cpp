#include "tests/engine/ops/harness.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/bfloat16.h"
#include "lockstep/base/numeric/float16.h"
#include "lockstep/engine/device/allocator.h"
#include "lockstep/engine/device/device_memory.h"
#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/engine/kernels/loading.h"
#include "lockstep/engine/kernels/self_test/self_test.h"
#include "lockstep/engine/kernels/windows/convolution.h"
#include "tests/engine/ops/cases.h"

namespace lockstep::optest {
namespace {

void round_to(DType dtype, Array& array) {
  for (double& v : array.values) {
    const auto x = static_cast<float>(v);
    v = static_cast<double>(dtype == DType::bf16 ? to_float(to_bfloat16(x))
                                                 : to_float(to_float16(x)));
  }
}

// By norm.
double tolerance_of(const Case& c) { return is_narrow(c.inputs[0].dtype) ? c.narrow_error : 1e-5; }

class WeightedSum final : public FloatOp {
 public:
  explicit WeightedSum(const Array& weights)
      : shape_(shape_of(weights)), weights_(weights.values.begin(), weights.values.end()) {}
  std::string_view type() const override { return "weighted_sum"; }
  bool takes_narrow(size_t) const override { return true; }
  std::vector<Shape> infer_shapes(std::span<const Shape> in) const override {
    check_count(*this, in.size(), 1, 1);
    if (!(in[0] == shape_)) {
      throw InvalidArgument("[weighted_sum] " + shape_.to_string() + " wanted, received " +
                            in[0].to_string());
    }
    return {Shape{}};
  }
  bool has_constant_slope() const override { return true; }
  std::vector<Value> tangent(std::span<const Value>,
                             std::span<const Value> changes) const override {
    return apply_all(shared_from_this(), changes);
  }
  kernels::Kernel compile(const kernels::Table&, std::span<const TensorSpec>) const override {
    const TensorSpec plain{shape_, DType::f32, nullptr}, scalar{Shape{}, DType::f32, nullptr};
    kernels::Kernel kernel;
    kernel.forward = {{kernels::input(0, plain)},
                      {kernels::output(0, scalar)},
                      0,
                      [weights = weights_](const kernels::PassMemory& where) {
                        const auto* x = static_cast<const float*>(where.reads[0]);
                        auto* y = static_cast<float*>(where.writes[0]);
                        return kernels::BoundPass([=](const RandomContext&) {
                          double total = 0;
                          for (size_t i = 0; i < weights.size(); ++i) {
                            total += static_cast<double>(weights[i]) * static_cast<double>(x[i]);
                          }
                          *y = static_cast<float>(total);
                        });
                      }};
    kernel.backward.push_back({{kernels::diff_output(0, scalar)},
                               {kernels::diff_input(0, plain)},
                               0,
                               [weights = weights_](const kernels::PassMemory& where) {
                                 const auto* dy = static_cast<const float*>(where.reads[0]);
                                 auto* dx = static_cast<float*>(where.writes[0]);
                                 return kernels::BoundPass([=](const RandomContext&) {
                                   for (size_t i = 0; i < weights.size(); ++i) {
                                     dx[i] = weights[i] * *dy;
                                   }
                                 });
                               }});
    return kernel;
  }

 private:
  Shape shape_;
  std::vector<float> weights_;
};

double norm(const std::vector<double>& values) {
  double total = 0;
  for (double v : values) total += v * v;
  return std::sqrt(total);
}

std::vector<Array> values_of(const Case& c) {
  std::vector<Array> values;
  for (const Input& input : c.inputs) values.push_back(input.value);
  return values;
}

// The case's inputs on the device. `blocked`: images in the convolutions' layout; returns nothing
// if that is the same layout.
std::vector<Tensor> tensors_of(Device device, const Case& c, bool blocked) {
  std::vector<Tensor> tensors;
  bool changed = false;
  for (const Input& input : c.inputs) {
    const bool narrow = is_narrow(input.dtype);
    Tensor t = tensor_of(input.value, narrow ? DType::f32 : input.dtype).to(device);
    if (narrow) t = convert(t, {t.shape(), input.dtype, nullptr});
    EXPECT_EQ(t.device(), device);
    if (blocked && t.shape().rank() == 4 && (t.dtype() == DType::f32 || narrow)) {
      const TensorSpec spec = image_layout(device, t.shape(), t.dtype());
      changed |= !spec.row_major();
      t = convert(t, spec);
    }
    tensors.push_back(t);
  }
  if (blocked && !changed) tensors.clear();
  return tensors;
}

const char* name_of_layout(bool blocked) { return blocked ? "blocked" : "row-major"; }

std::string row_of_support(Device device, const Case& c) {
  std::string row = std::string(c.op->type());
  row.resize(26, ' ');
  row += name_of_device(device) + "  " + std::string(name_of(c.inputs[0].dtype));
  return row;
}

uint64_t seed_of(const std::string& name) {
  uint64_t seed = 1;
  for (char ch : name) seed = seed * 31 + static_cast<unsigned char>(ch);
  return seed;
}

}  // namespace

std::vector<Device> devices() {
  // These tests judge the kernels, so none is left out.
  kernels::set_verdict_source([](const kernels::DeviceInfo& info) {
    const kernels::UntestedDevice device = kernels::untested_device(info.device);
    kernels::Verdict verdict;
    for (const auto& c : kernels::self_test_cases(*device.table)) {
      verdict.kernels.push_back({.kernel = c.kernel, .type = c.type});
    }
    return verdict;
  });
  std::vector<Device> all{Device{}};
  for (const auto& info : kernels::list_devices()) {
    if (info.usable()) all.push_back(info.device);
  }
  return all;
}

std::string name_of_device(Device device) {
  return device.is_cpu() ? "cpu" : "cuda" + std::to_string(device.index);
}

Array random_array(std::vector<int64_t> dims, uint64_t seed) {
  return random_array(std::move(dims), seed, -1, 1);
}

Array random_array(std::vector<int64_t> dims, uint64_t seed, double low, double high) {
  std::mt19937_64 bits(seed);
  Array array(std::move(dims));
  for (double& value : array.values) {
    const double u = static_cast<double>(bits() >> 11) * 0x1p-53;
    value = static_cast<double>(static_cast<float>(low + (high - low) * u));
  }
  return array;
}

Shape shape_of(const Array& array) { return Shape(array.dims); }

Tensor tensor_of(const Array& array, DType dtype) {
  const auto& v = array.values;
  if (dtype == DType::i32) {
    return Tensor::from(std::span<const int32_t>(std::vector<int32_t>(v.begin(), v.end())),
                        shape_of(array));
  }
  if (dtype == DType::i64) {
    return Tensor::from(std::span<const int64_t>(std::vector<int64_t>(v.begin(), v.end())),
                        shape_of(array));
  }
  if (dtype == DType::u8) {
    return Tensor::from(std::span<const uint8_t>(std::vector<uint8_t>(v.begin(), v.end())),
                        shape_of(array));
  }
  const Tensor floats =
      Tensor::from(std::span<const float>(std::vector<float>(v.begin(), v.end())), shape_of(array));
  return dtype == DType::bf16 ? convert(floats, {floats.shape(), dtype, nullptr}) : floats;
}

Array array_of(const Tensor& tensor) {
  Array array(tensor.shape().dims());
  const std::vector<float> values =
      convert(tensor, {tensor.shape(), DType::f32, nullptr}).to_vector();
  array.values.assign(values.begin(), values.end());
  return array;
}

double relative_error(const Array& actual, const Array& expected, double floor) {
  constexpr double infinite = std::numeric_limits<double>::infinity();
  if (actual.count() != expected.count()) return infinite;
  std::vector<double> difference(actual.values.size());
  for (size_t i = 0; i < difference.size(); ++i) {
    difference[i] = actual.values[i] - expected.values[i];
  }
  const double error = norm(difference), size = std::max(norm(expected.values), floor);
  if (std::isnan(error)) return infinite;
  if (size == 0) return error == 0 ? 0 : infinite;
  return error / size;
}

std::string refusal_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "nothing was thrown";
}

void expect_refusal(const std::function<void()>& call, std::initializer_list<const char*> parts) {
  const std::string text = refusal_of(call);
  for (const char* part : parts) EXPECT_NE(text.find(part), std::string::npos) << text;
}

OpPtr make_weighted_sum(const Array& weights) { return std::make_shared<WeightedSum>(weights); }

Tensor weighted_sum(const Tensor& x, const Array& weights) {
  const OpPtr op = make_weighted_sum(weights);
  const Device device = x.device();
  if (device.is_cpu()) return apply_op(op, {x})[0];
  // The CPU may not compute with the device's type.
  const Tensor floats = convert(x, {x.shape(), DType::f32, nullptr});
  const Tensor sum = apply_op(op, {floats.to({})})[0].to(device);
  Tape* const tape = Tape::current();
  if (!tape || !tape->tracks(std::span(&x, 1))) return sum;
  tape->record({x}, {sum}, [=](const std::vector<Tensor>& diffs, const std::vector<bool>&) {
    const float diff = diffs[0].item();
    std::vector<float> gradient;
    for (double w : weights.values) gradient.push_back(static_cast<float>(w) * diff);
    return std::vector<Tensor>{Tensor::from(gradient, shape_of(weights)).to(device)};
  });
  return sum;
}

void run_pass(const kernels::Pass& pass, const std::vector<Tensor>& reads,
              const std::vector<Tensor>& writes) {
  const Device device = (reads.empty() ? writes : reads).front().device();
  const Memory scratch = allocate(pass.scratch_bytes, device);
  std::vector<void*> r, w;
  for (const Tensor& t : reads) r.push_back(t.raw());
  for (const Tensor& t : writes) w.push_back(t.raw());
  if (device.is_cpu()) {
    pass.bind({r, w, scratch.data()})({});
    return;
  }
  DeviceMemory& memory = memory_of(device);
  memory.activate();
  pass.bind({r, w, scratch.data(), memory.default_stream()})({});
}

TensorSpec image_layout(Device device, const Shape& shape, DType dtype) {
  if (!device.is_cpu()) memory_of(device).activate();
  const int64_t c = shape[1];
  kernels::ConvolutionProblem p;
  p.src = {shape, dtype, nullptr};
  p.weights = Shape{c, c, 3, 3};
  p.dst = shape;
  p.window.kernel = {3, 3};
  p.window.pad_begin = p.window.pad_end = {1, 1};
  return kernels::table_for(device).convolution(p).forward.writes.at(0).spec;
}

bool takes_narrow(const Case& c) {
  return c.op->takes_narrow(0) && c.inputs[0].dtype == DType::f32;
}

std::vector<DType> narrow_types(const kernels::Table& table) {
  std::vector<DType> types;
  if (table.bf16) types.push_back(DType::bf16);
  if (table.f16) types.push_back(DType::f16);
  return types;
}

Case in_narrow(DType dtype, Case c) {
  c.smooth = false;  // rounding can make different values equal
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    Input& input = c.inputs[i];
    if (c.op->takes_narrow(i)) input.dtype = dtype;
    // Weights are multiplied in this type, too.
    if (input.value.dims.size() > 1) round_to(dtype, input.value);
  }
  return c;
}

std::ostream& operator<<(std::ostream& to, const Case& c) {
  return to << c.op->type() << " " << c.name;
}

std::vector<Case> all_cases() {
  std::vector<Case> all;
  for (const auto some :
       {convolution_cases, transposed_convolution_cases, pooling_cases, space_cases,
        normalization_cases, group_normalization_cases, activation_cases, elementwise_cases,
        loss_cases, matmul_cases, attention_cases, ctc_cases, recurrent_cases}) {
    for (Case& c : some()) all.push_back(std::move(c));
  }
  return all;
}

std::vector<Case> offered_cases(Device device) {
  std::vector<Case> all = all_cases();
  std::erase_if(all, [&](const Case& c) { return !c.op->offered_by(kernels::table_for(device)); });
  return all;
}

std::vector<SharedCase> shared_cases(Device device) {
  static const std::vector<SharedCase> all = [] {
    std::vector<SharedCase> made;
    for (Case& c : all_cases()) made.push_back(std::make_shared<const Case>(std::move(c)));
    return made;
  }();
  std::vector<SharedCase> offered = all;
  std::erase_if(
      offered, [&](const SharedCase& c) { return !c->op->offered_by(kernels::table_for(device)); });
  return offered;
}

// By norm, beside central differences in fp64.
constexpr double kSecondTolerance = 2e-4;

void check_forward(Device device, const Case& c) {
  const std::vector<Array> expected = c.forward(values_of(c));
  for (bool blocked : {false, true}) {
    const std::vector<Tensor> inputs = tensors_of(device, c, blocked);
    if (inputs.empty()) continue;
    SCOPED_TRACE(name_of_layout(blocked));
    std::vector<TensorSpec> specs;
    for (const Tensor& t : inputs) specs.push_back(t.spec().plain());
    const std::vector<TensorSpec> inferred = c.op->infer(specs);
    const std::vector<Tensor> outputs = apply_op(c.op, inputs, c.step);
    ASSERT_EQ(inferred.size(), expected.size());
    ASSERT_EQ(outputs.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      SCOPED_TRACE("output " + std::to_string(i));
      EXPECT_EQ(inferred[i].shape.to_string(), shape_of(expected[i]).to_string());
      EXPECT_EQ(outputs[i].shape().to_string(), shape_of(expected[i]).to_string());
      EXPECT_LE(relative_error(array_of(outputs[i]), expected[i]), tolerance_of(c));
    }
  }
  if (!testing::Test::HasFailure()) ++support()[row_of_support(device, c)].forward;
}

void check_gradients(Device device, const Case& c) {
  if (!c.backward) return;
  const std::vector<Array> values = values_of(c);
  Array dy = random_array(c.forward(values)[0].dims, seed_of(c.name));
  if (is_narrow(c.inputs[0].dtype)) round_to(c.inputs[0].dtype, dy);
  const std::vector<Array> expected = c.backward(values, dy);
  ASSERT_EQ(expected.size(), c.inputs.size());
  for (bool blocked : {false, true}) {
    const std::vector<Tensor> inputs = tensors_of(device, c, blocked);
    if (inputs.empty()) continue;
    SCOPED_TRACE(name_of_layout(blocked));
    Tape tape;
    tape.watch(inputs);
    const Tensor y = apply_op(c.op, inputs, c.step)[0];
    const Tensor scalar = weighted_sum(y, dy);
    std::vector<Tensor> asked;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (c.inputs[i].gradient) asked.push_back(inputs[i]);
    }
    const std::vector<Tensor> gradients = tape.gradient(scalar, asked);
    ASSERT_EQ(gradients.size(), asked.size());
    for (size_t i = 0, k = 0; i < inputs.size(); ++i) {
      if (!c.inputs[i].gradient) continue;
      const Tensor& gradient = gradients[k++];
      SCOPED_TRACE("gradient of input " + std::to_string(i));
      EXPECT_EQ(gradient.shape().to_string(), inputs[i].shape().to_string());
      EXPECT_LE(relative_error(array_of(gradient), expected[i], c.cancelling), tolerance_of(c));
      // Requested alone, without the passes of other gradients.
      const Tensor alone = tape.gradient(scalar, {inputs[i]})[0];
      EXPECT_EQ(relative_error(array_of(alone), array_of(gradient)), 0);
    }
  }
  if (!testing::Test::HasFailure()) ++support()[row_of_support(device, c)].gradient;
}

void check_second_derivatives(Device device, const Case& c) {
  if (!c.backward || !c.smooth) return;
  const std::vector<Array> values = values_of(c);
  const Array dy = random_array(c.forward(values)[0].dims, seed_of(c.name));
  // The directions in which the first derivatives are added up.
  std::vector<Array> directions;
  for (size_t i = 0; i < values.size(); ++i) {
    directions.push_back(random_array(values[i].dims, seed_of(c.name) + 1 + i));
  }
  // Moves the inputs with derivatives along the directions.
  constexpr double h = 1e-5;
  const auto moved = [&](double step) {
    std::vector<Array> there = values;
    for (size_t i = 0; i < there.size(); ++i) {
      if (!c.inputs[i].gradient) continue;
      for (int64_t k = 0; k < there[i].count(); ++k) there[i][k] += step * directions[i][k];
    }
    return there;
  };
  const auto difference = [&](const Array& above, const Array& below) {
    Array slope = above;
    for (int64_t k = 0; k < slope.count(); ++k) slope[k] = (above[k] - below[k]) / (2 * h);
    return slope;
  };
  const Array along = difference(c.forward(moved(h))[0], c.forward(moved(-h))[0]);
  const std::vector<Array> above = c.backward(moved(h), dy), below = c.backward(moved(-h), dy);
  for (bool blocked : {false, true}) {
    const std::vector<Tensor> inputs = tensors_of(device, c, blocked);
    if (inputs.empty()) continue;
    SCOPED_TRACE(name_of_layout(blocked));
    Tape tape;
    std::vector<Tensor> asked;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (c.inputs[i].gradient) asked.push_back(inputs[i]);
    }
    const Tensor weights = tensor_of(dy).to(device);
    tape.watch(asked);
    tape.watch(weights);
    const Tensor y = apply_op(c.op, inputs, c.step)[0];
    const Tensor scalar = ops::sum(ops::multiply({y, weights}));
    const std::vector<Tensor> gradients = tape.gradient(scalar, asked, {.create_graph = true});
    Tensor total;
    for (size_t i = 0, k = 0; i < inputs.size(); ++i) {
      if (!c.inputs[i].gradient) continue;
      const Tensor term = weighted_sum(gradients[k++], directions[i]);
      total = total.defined() ? ops::add({total, term}) : term;
    }
    asked.push_back(weights);
    std::vector<Tensor> second;
    if (tape.tracks({&total, 1})) {
      second = tape.gradient(total, asked);
    } else {  // the gradient is 0 everywhere
      for (const Tensor& t : asked) second.push_back(Tensor::zeros(t.shape()));
    }
    SCOPED_TRACE("derivatives of derivatives");
    EXPECT_LE(relative_error(array_of(second.back()), along, 1e-3), kSecondTolerance) << "dy";
    for (size_t i = 0, k = 0; i < inputs.size(); ++i) {
      if (!c.inputs[i].gradient) continue;
      EXPECT_LE(relative_error(array_of(second[k++]), difference(above[i], below[i]),
                               std::max(1e-3, c.cancelling)),
                kSecondTolerance)
          << "input " << i;
    }
  }
}

void check_reference(const Case& c) {
  if (!c.backward || !c.smooth) return;
  std::vector<Array> values = values_of(c);
  const Array dy = random_array(c.forward(values)[0].dims, seed_of(c.name));
  const std::vector<Array> gradients = c.backward(values, dy);
  auto scalar = [&] {
    const Array y = c.forward(values)[0];
    double total = 0;
    for (int64_t i = 0; i < y.count(); ++i) total += dy[i] * y[i];
    return total;
  };
  constexpr double h = 1e-6;
  for (size_t k = 0; k < values.size(); ++k) {
    if (!c.inputs[k].gradient) continue;
    SCOPED_TRACE("input " + std::to_string(k));
    Array& x = values[k];
    ASSERT_EQ(gradients[k].dims, x.dims);
    const Array kept = x;
    // One direction through all elements, then single elements across the array.
    const Array direction = random_array(x.dims, 17 + k);
    double along = 0;
    for (int64_t i = 0; i < x.count(); ++i) along += gradients[k][i] * direction[i];
    auto derivative = [&](auto move) {
      x = kept;
      move(h);
      const double above = scalar();
      x = kept;
      move(-h);
      const double below = scalar();
      x = kept;
      return (above - below) / (2 * h);
    };
    const double all = derivative([&](double step) {
      for (int64_t i = 0; i < x.count(); ++i) x[i] += step * direction[i];
    });
    const double size = std::max(1.0, norm(gradients[k].values));
    EXPECT_NEAR(all, along, 1e-7 * size);
    const int64_t stride = x.count() / 24 + 1;
    for (int64_t i = 0; i < x.count(); i += stride) {
      EXPECT_NEAR(derivative([&](double step) { x[i] += step; }), gradients[k][i], 1e-7 * size)
          << "element " << i;
    }
  }
}

std::map<std::string, Support>& support() {
  static std::map<std::string, Support> instance;
  return instance;
}

}  // namespace lockstep::optest
