// A plan is a graph compiled for its shapes. Compilation fuses ops, chooses layouts and keeps them
// between ops, places buffers so that memory is reused, and creates kernels once. A run allocates
// no memory.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/engine/graph/graph.h"
#include "lockstep/engine/kernels/backends/tables.h"
#include "lockstep/engine/plan/packed_parameters.h"

namespace lockstep {

struct KeptPart;    // kept_part.h
struct Unchanging;  // kept_part.h

// The offsets of the gradients of all parameters in one block of memory. Each gradient has the
// layout that its kernel writes.
struct GradientLayout {
  struct Entry {
    TensorSpec spec;
    size_t offset = 0;  // bytes, a multiple of 64
  };
  std::vector<Entry> entries;  // by parameter
  size_t bytes = 0;
  // The first bytes, which have the gradients that are summed over shards: all of them, unless
  // those of parameters that never learn lie after the others.
  size_t summed_bytes = 0;
};

struct PlanOptions {
  bool gradients = false;            // compile a backward run
  bool input_gradients = false;      // compute gradients of the f32 inputs
  std::vector<bool> of_inputs = {};  // of which ones; empty: of all
  // Fuses pairs of ops, like a softmax and a cross-entropy, whose bits may then differ from those
  // of one after the other. Expressions are combined in any case, with the same bits.
  bool fuses_pairs = true;
  // Compute the total derivative of each differentiated output from which other values are
  // computed.
  bool total_output_gradients = false;
  // Numbers of the outputs whose derivatives the backward run starts from.
  std::vector<int> differentiated;
  // bf16 or f16: ops that support the type compute with it, all others with f32. Gradients of
  // parameters, outputs and output gradients stay f32.
  DType precision = DType::f32;
  // The layout that another plan of the same parameters chose. Null: this plan chooses it.
  const GradientLayout* gradient_layout = nullptr;
  // Leaves gradients of parameters to Plan::shard_sums(): the backward run does not compute them,
  // and runs have no memory for them. Needs a network for which Plan::shards_together() holds.
  bool sums_over_shards = false;
  // Divides the plan, on the CPU and without sums_over_shards: see Plan::kept_part(). Null: it is
  // not divided. Read by the constructor alone.
  const Unchanging* unchanging = nullptr;
};

// A sum of parameter gradients over shards, on the CPU.
struct PlanShardSum {
  std::string name;
  kernels::SumOverShards sum;
  std::vector<int> parameters;  // of each result, in order
};

// One pass of a plan: a kernel, a conversion of layout or a sum.
struct PlanPass {
  std::string name;       // "conv_1", "conv_1: gradient", "pool_1: layout"
  bool backward = false;  // else part of the forward run
  bool conversion = false;
};

// Observes the passes of a run on the CPU.
class PassWatch {
 public:
  virtual ~PassWatch() = default;
  // Called when pass number `pass` of Plan::passes() ends and the next one begins.
  virtual void passed(size_t pass) = 0;
};

// What a backward run on the CPU computes; a device always computes all.
struct BackwardResults {
  bool parameters = true;  // gradients of the parameters on which the outputs depend
  bool zeros = true;       // zeros for the other parameters; else their gradients are undefined
  bool values = true;      // gradients of inputs, total derivatives of outputs
};

// Immutable once compiled. Several threads may share a plan if each one has its own PlanRun.
class Plan {
 public:
  // `parameters`: shapes by the graph's parameter slots. Throws Unsupported if the back end has no
  // kernel for an op.
  Plan(const Graph& graph, std::vector<Shape> parameters, const PlanOptions& options,
       Device device = {});
  ~Plan();

  Device device() const;
  const GradientLayout& gradient_layout() const;
  // Whether a plan for the rows of several shards computes the bits of one plan for each shard: no
  // row's results depend on other rows, and the gradients of all parameters on which the
  // differentiated outputs depend have sums over shards.
  bool shards_together() const;
  // With PlanOptions::sums_over_shards.
  const std::vector<PlanShardSum>& shard_sums() const;
  // By parameter: whether the differentiated outputs depend on it.
  const std::vector<bool>& reached_parameters() const;
  // With PlanOptions::unchanging, else null.
  const KeptPart* kept_part() const;
  // Number of layout conversions in one forward and one backward run.
  int reorders() const;
  // Memory of one run in bytes, without gradients.
  size_t arena_bytes() const;
  // Passes of the forward run, then of the backward run, in order of execution.
  std::vector<PlanPass> passes() const;
  // One line per step: phase, name, and the specs that it reads and writes.
  std::string describe() const;

  struct State;
  const State& state() const { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

struct PlanMemory;  // runs_in_turn.h

// A plan with its own memory on the plan's device, or with memory that it shares. Not thread-safe.
// The run shares ownership of the plan. The parameters and the states must outlive the run.
//
// On a device other than the CPU, a run has its own stream. forward(), backward() and the copying
// functions add work to it without waiting. Results can be read after synchronize(). Each run waits
// for earlier work on the device's default stream, such as packing, and for the thread's eager
// work, which waits for a run only after join(). From the second time on, a run is replayed from a
// recording if the device supports recordings.
class PlanRun {
 public:
  // `states`, by slot: row-major f32 memory on the plan's device, which the plan reads. `memory`:
  // for runs in turn, with at least sizes_of(plan); null: its own. Throws InvalidArgument if the
  // parameters are on another device.
  PlanRun(std::shared_ptr<const Plan> plan, PackedParameters& parameters,
          const std::vector<const float*>& states, std::shared_ptr<PlanMemory> memory = {});
  ~PlanRun();
  PlanRun(PlanRun&&) noexcept;

  const Plan& plan() const;

  // The following addresses are on the plan's device and never change. input(): row-major memory of
  // input `i`, which the caller fills before each forward run.
  void* input(int i) const;
  int inputs() const;  // number of inputs
  // Whether a pass reads input `i`; if not, it need not be filled.
  bool reads_input(int i) const;
  size_t input_bytes(int i) const;
  // Row-major output `i`, valid from a forward run to the next one.
  const float* output(int i) const;
  // The output gradient `i`, from which the backward run starts. The caller fills it before
  // backward(), which does not change it.
  float* output_gradient(int i) const;
  // Derivative with respect to input `i`, after backward(). Null if there is none. Valid until the
  // next run or until an output gradient is written, because several may share memory with each
  // other and with output gradients.
  const float* input_gradient(int i) const;
  // Total derivative with respect to output `i`, after backward(): the output gradient plus the
  // contributions through other outputs. Null without PlanOptions::total_output_gradients or if no
  // other value is computed from the output. Valid as long as input_gradient().
  const float* total_output_gradient(int i) const;
  // Derivatives of all parameters, after backward(), in the plan's gradient_layout().
  std::byte* gradients() const;
  // After backward(), on the CPU: keeps the operands of sum number `sum` of Plan::shard_sums() in
  // `kept`, which has SumOverShards::kept_bytes(leaves). The run's rows are rows [first, ...) of
  // the leaves.
  void keep(size_t sum, int64_t first, std::span<const kernels::ShardLeaf> leaves,
            void* kept) const;

  // Copies of the same data from and to host memory, for every device. Throw InvalidArgument unless
  // `bytes` is the size of the operand. On a device, pinned source memory must stay valid until
  // synchronize(), and data for the host arrives by then.
  void set_input(int i, const void* host, size_t bytes);
  void get_output(int i, void* host, size_t bytes) const;
  void set_output_gradient(int i, const void* host, size_t bytes);
  void get_input_gradient(int i, void* host, size_t bytes) const;

  // `watch` may be null. It is not called on a device other than the CPU.
  void forward(const RandomContext& step, PassWatch* watch = nullptr);
  void backward(const RandomContext& step, PassWatch* watch = nullptr,
                const BackwardResults& results = {});

  // For a plan with a kept_part(): computes its arrays from the inputs, which are then invalid.
  void forward_first(const RandomContext& step, PassWatch* watch = nullptr);
  // Array number `k` of the kept part, row-major: written by forward_first(), read by
  // forward_rest().
  std::byte* kept(size_t k) const;
  // The forward run from these arrays and the inputs that the rest reads. The caller fills both
  // before each run.
  void forward_rest(const RandomContext& step, PassWatch* watch = nullptr);
  // After forward() or forward_rest(): the gradients of the parameters that change. Those of others
  // are undefined, but the same in every run.
  void backward_rest(const RandomContext& step, PassWatch* watch = nullptr);

  // On a device, for callers that record runs as parts of more work. add_forward() and
  // add_backward() add the passes to the stream and nothing else: the caller orders the stream
  // after others, and work before them writes the RandomContext to step().
  void add_forward();
  void add_backward();
  RandomContext* step() const;

  // Null on the CPU.
  void* stream() const;
  // Waits until all work on the stream is finished.
  void synchronize() const;
  // Makes eager work that this thread adds from now on wait for this run (see eager_stream.h).
  void join() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
