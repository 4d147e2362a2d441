// A case is an op with inputs and expected results. The checks run it on a device.
#pragma once

#include <functional>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "lockstep/engine/autograd/tape.h"
#include "lockstep/engine/graph/op.h"
#include "lockstep/engine/kernels/interface/kernel.h"
#include "tests/engine/ops/reference.h"

namespace lockstep::optest {

using reference::Array;

// The devices for the tests: the CPU and all usable GPUs, with all their kernels, also those that
// have not passed the self-test.
std::vector<Device> devices();
std::string name_of_device(Device device);

// Numbers in [-1, 1) that are exact floats, so that the reference and the kernels use the same
// values.
Array random_array(std::vector<int64_t> dims, uint64_t seed);
// Same, in [low, high).
Array random_array(std::vector<int64_t> dims, uint64_t seed, double low, double high);

Shape shape_of(const Array& array);
Tensor tensor_of(const Array& array, DType dtype = DType::f32);
Array array_of(const Tensor& tensor);

// |actual - expected| / max(|expected|, floor), Euclidean norms; 0 if both are 0. NaN and a wrong
// number of elements count as infinite.
double relative_error(const Array& actual, const Array& expected, double floor = 0);

// The message of the InvalidArgument that the call throws; "nothing was thrown" if it throws
// nothing.
std::string refusal_of(const std::function<void()>& call);
// Expects a refusal whose message has all the parts.
void expect_refusal(const std::function<void()>& call, std::initializer_list<const char*> parts);

// Sum of weights * x, a scalar. This op of the tests gives any output an arbitrary gradient.
OpPtr make_weighted_sum(const Array& weights);
// Same, for a tensor on any device. The values go through the host.
Tensor weighted_sum(const Tensor& x, const Array& weights);

// Runs a pass immediately, on the device of the tensors.
void run_pass(const kernels::Pass& pass, const std::vector<Tensor>& reads,
              const std::vector<Tensor>& writes);

// The layout that a convolution of this device gives to images of `shape`.
TensorSpec image_layout(Device device, const Shape& shape, DType dtype = DType::f32);

struct Input {
  Array value;
  DType dtype = DType::f32;
  bool gradient = true;  // has a gradient
};

struct Case {
  std::string name;
  OpPtr op;
  std::vector<Input> inputs;
  // Outputs for inputs.
  std::function<std::vector<Array>(const std::vector<Array>&)> forward;
  // Gradients of sum(dy * first output), one for each input; empty for inputs without one.
  std::function<std::vector<Array>(const std::vector<Array>&, const Array& dy)> backward;
  RandomContext step = {};
  bool smooth = true;  // false: the derivative jumps, or values are too large for differences
  // Size of the terms that cancel in an exact gradient of (almost) zero. Errors are relative to it.
  double cancelling = 0;
  double narrow_error = 1e-2;  // by norm, for rounding to bf16 and f16
};
std::ostream& operator<<(std::ostream& to, const Case& c);

// Same, with bf16 or f16 for the inputs that the op accepts in these types. Values are rounded to
// be exact in the type. Only if takes_narrow(c).
bool takes_narrow(const Case& c);
// The narrow types that a table has kernels for.
std::vector<DType> narrow_types(const kernels::Table& table);
Case in_narrow(DType dtype, Case c);

// Each check reports differences through GoogleTest. The first two run a case with images twice:
// row-major, and in the layout of convolutions.
void check_forward(Device device, const Case& c);
void check_gradients(Device device, const Case& c);
// Derivatives of gradients, beside central differences of the reference's gradients.
void check_second_derivatives(Device device, const Case& c);
// The reference's gradients against its central differences.
void check_reference(const Case& c);

// Checks passed so far, by op, device and dtype.
struct Support {
  int forward = 0, gradient = 0;
};
std::map<std::string, Support>& support();

}  // namespace lockstep::optest
