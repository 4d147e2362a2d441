// A case is an op with inputs and what it has to give; the checks run it on a device.
#pragma once

#include <functional>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "lockstep/engine/autograd/tape.h"
#include "tests/engine/ops/reference.h"

namespace lockstep::optest {

using reference::Array;

// The devices that the tests run on: the CPU, and the GPUs that can be used, with all their kernels
// (LOCKSTEP_UNVERIFIED is set to `all`).
std::vector<Device> devices();
std::string name_of_device(Device device);

// Numbers in [-1, 1) that a float holds exactly, so that the reference sees what the kernels see.
Array random_array(std::vector<int64_t> dims, uint64_t seed);
// The same in [low, high).
Array random_array(std::vector<int64_t> dims, uint64_t seed, double low, double high);

Shape shape_of(const Array& array);
Tensor tensor_of(const Array& array, DType dtype = DType::f32);
Array array_of(const Tensor& tensor);

// |actual - expected| / max(|expected|, floor), Euclidean norms; 0 where both are 0. NaN and a
// wrong number of elements count as infinite.
double relative_error(const Array& actual, const Array& expected, double floor = 0);

// Sum of weights * x, a scalar: an op of the tests' own, so that any output gets an arbitrary
// gradient.
OpPtr make_weighted_sum(const Array& weights);
// The same for a tensor on any device, by way of the host.
Tensor weighted_sum(const Tensor& x, const Array& weights);

// Runs a pass at once, on the device where the tensors lie.
void run_pass(const kernels::Pass& pass, const std::vector<Tensor>& reads,
              const std::vector<Tensor>& writes);

// The layout that a convolution of this device gives to images of `shape`.
TensorSpec image_layout(Device device, const Shape& shape, DType dtype = DType::f32);

struct Input {
  Array value;
  DType dtype = DType::f32;
  bool gradient = true;  // has one
};

struct Case {
  std::string name;
  OpPtr op;
  std::vector<Input> inputs;
  // Outputs for inputs.
  std::function<std::vector<Array>(const std::vector<Array>&)> forward;
  // Gradients of sum(dy * first output), one for each input; empty where it has none.
  std::function<std::vector<Array>(const std::vector<Array>&, const Array& dy)> backward;
  kernels::StepInfo step = {};
  bool smooth = true;  // false: the derivative jumps here, or values are too large for differences
  // Size of the terms that cancel in an exact gradient of (almost) zero: errors are relative to it
  // there.
  double cancelling = 0;
  double narrow_error = 1e-2;  // by norm, what bf16 and f16 may round
};
std::ostream& operator<<(std::ostream& to, const Case& c);

// The same with bf16 or f16 for the inputs that the op takes as such; values are rounded so that it
// holds them exactly. Only where takes_narrow(c).
bool takes_narrow(const Case& c);
Case in_narrow(DType dtype, Case c);

// Each reports what differs through GoogleTest. The first two run a case twice where it has images:
// row-major, and in the layout that convolutions give.
void check_forward(Device device, const Case& c);
void check_gradients(Device device, const Case& c);
// The reference's gradients against its central differences.
void check_reference(const Case& c);

// Checks passed so far, by op, device and dtype.
struct Support {
  int forward = 0, gradient = 0;
};
std::map<std::string, Support>& support();

}  // namespace lockstep::optest
