// Plans: a graph compiled for its shapes. Ops are fused, layouts chosen and kept from op to op,
// buffers planned and reused, primitives made once; running allocates nothing.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/engine/kernels/table.h"
#include "lockstep/engine/plan/graph.h"
#include "lockstep/engine/plan/packed_parameters.h"

namespace lockstep {

// Where the gradients of all parameters lie, one behind the other, each in the layout that its
// kernel writes.
struct GradientLayout {
  struct Entry {
    TensorSpec spec;
    size_t offset = 0;  // bytes, a multiple of 64
  };
  std::vector<Entry> entries;  // by parameter
  size_t bytes = 0;
};

struct PlanOptions {
  bool gradients = false;        // with a backward run
  bool input_gradients = false;  // of the f32 inputs too
  // Of the seeds' outputs too, where other values are computed from them.
  bool output_gradients = false;
  std::vector<int> seeds;  // outputs (by number) whose derivatives the backward run starts from
  // bf16 or f16: ops that take it compute with it, the others with f32. Gradients of parameters,
  // outputs and seeds are f32 all the same.
  DType precision = DType::f32;
  // Layout that another plan of the same parameters chose; none: this plan chooses.
  const GradientLayout* gradient_layout = nullptr;
};

// A pass of a plan: a kernel, a conversion of layout, a sum.
struct PlanPass {
  std::string name;       // "conv_1", "conv_1: gradient", "pool_1: layout"
  bool backward = false;  // else of the forward run
  bool conversion = false;
};

// Told about the passes of a run on the CPU.
class PassWatch {
 public:
  virtual ~PassWatch() = default;
  // Pass number `pass` of Plan::passes() has just ended; the next one begins.
  virtual void passed(size_t pass) = 0;
};

// Immutable once compiled; shared by threads, each with its own PlanRun.
class Plan {
 public:
  // `parameters` are the shapes behind the graph's parameter slots. Throws Unsupported where the
  // back end has no kernel.
  Plan(const Graph& graph, std::vector<Shape> parameters, const PlanOptions& options,
       Device device = {});
  ~Plan();

  Device device() const;
  const GradientLayout& gradient_layout() const;
  // Layout conversions in one run forward and one backward.
  int reorders() const;
  // Memory of one run, gradients not included.
  size_t arena_bytes() const;
  // Those of the forward run, then of the backward run, as they run.
  std::vector<PlanPass> passes() const;
  // One line for each step: phase, name, and what it reads and writes.
  std::string describe() const;

  struct State;
  const State& state() const { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

// A plan with memory of its own, on the plan's device. One thread at a time; keep the plan, the
// parameters and the states alive.
//
// On a device other than the CPU a run has a queue of its own, and forward(), backward() and the
// copying accessors add to it without waiting: results can be read after synchronize(). Each run
// waits for what was added to the device's default queue before it (packing, say); the default
// queue waits for a run only where join() says so. From its second time on a run is repeated from a
// recording, where the device makes them.
class PlanRun {
 public:
  // `states` by slot: row-major f32 memory on the plan's device that the plan reads. Throws
  // InvalidArgument when the parameters lie on another device.
  PlanRun(std::shared_ptr<const Plan> plan, PackedParameters& parameters,
          const std::vector<const float*>& states);
  ~PlanRun();
  PlanRun(PlanRun&&) noexcept;

  // Addresses on the plan's device, which stay the same.
  // Row-major memory of input number `i`, to be filled before each forward run.
  void* input(int i) const;
  int inputs() const;  // how many
  size_t input_bytes(int i) const;
  // Row-major result number `i`, valid after forward until the next one.
  const float* output(int i) const;
  // Derivative with respect to output `i` (a seed), to be filled before backward; it keeps what was
  // written.
  float* seed(int i) const;
  // Derivative with respect to input `i`, after backward; null where there is none. Valid until the
  // next run or until a seed is written: several may share memory, with seeds as well.
  const float* input_gradient(int i) const;
  // The whole derivative with respect to output `i`, a seed, by way of other outputs too, after
  // backward; null where nothing is computed from it. Valid as input_gradient() is.
  const float* output_gradient(int i) const;
  // Derivatives of all parameters after backward, as the plan's gradient_layout() says.
  std::byte* gradients() const;

  // The same copied from and to host memory, for every device. `bytes` must be the size of the
  // operand (InvalidArgument otherwise). On a device, pinned memory that is read must stay until
  // synchronize(), and what is written to the host is there after it.
  void set_input(int i, const void* host, size_t bytes);
  void get_output(int i, void* host, size_t bytes) const;
  void set_seed(int i, const void* host, size_t bytes);
  void get_input_gradient(int i, void* host, size_t bytes) const;

  // `watch`: see there; may be null, and is told nothing on a device.
  void forward(const kernels::StepInfo& step, PassWatch* watch = nullptr);
  void backward(const kernels::StepInfo& step, PassWatch* watch = nullptr);

  // Null on the CPU.
  void* queue() const;
  // Waits for all that was added to the queue.
  void synchronize() const;
  // What is added to the device's default queue from now on waits for this run.
  void join() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
