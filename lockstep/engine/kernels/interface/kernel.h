// The interface between what is computed (ops, plan) and how (a back end). A back end turns a
// problem into a Kernel: explicit passes (forward, backward-data, backward-weights). Each pass
// declares the operands that it reads and writes, with their layouts. The caller of a pass converts
// layouts, provides memory and decides the order.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/base/numeric/index_range.h"
#include "lockstep/base/numeric/random.h"
#include "lockstep/engine/tensor/spec.h"

namespace lockstep::kernels {

// One operand of a pass. `index` is the number of the op's input or output; 0 for the workspace.
struct Operand {
  enum class Kind : uint8_t { input, output, diff_output, diff_input, workspace };
  Kind kind;
  int index;
  TensorSpec spec;  // with the layout that the pass requires or produces
};

inline Operand input(int i, TensorSpec s) { return {Operand::Kind::input, i, std::move(s)}; }
inline Operand output(int i, TensorSpec s) { return {Operand::Kind::output, i, std::move(s)}; }
inline Operand diff_output(int i, TensorSpec s) {
  return {Operand::Kind::diff_output, i, std::move(s)};
}
inline Operand diff_input(int i, TensorSpec s) {
  return {Operand::Kind::diff_input, i, std::move(s)};
}
inline Operand workspace(size_t bytes) {
  return {Operand::Kind::workspace, 0, {Shape{static_cast<int64_t>(bytes)}, DType::u8, nullptr}};
}

// A pass bound to its memory. It can run any number of times, by one thread at a time. On a GPU it
// may be destroyed before the work that it added to its stream is complete.
using BoundPass = std::function<void(const RandomContext&)>;

// Addresses to bind, in the order of Pass::reads and Pass::writes. Each points to spec.bytes() of
// its operand on the pass's device. `scratch` points to Pass::scratch_bytes, whose contents need
// not survive between runs.
struct PassMemory {
  std::span<void* const> reads;
  std::span<void* const> writes;
  void* scratch = nullptr;
  // On a GPU: the stream to which each run adds work without waiting for it, and a RandomContext in
  // the device's memory. Kernels read that RandomContext instead of the argument of the run, so
  // that runs can be recorded once and replayed. It is null for reorder, accumulate and zero. The
  // caller makes the device current for the thread before it binds and runs.
  void* stream = nullptr;
  const RandomContext* device_step = nullptr;
};

// Binds a pass to memory; a function of PassMemory that returns a BoundPass.
class PassBinding {
 public:
  // Runs the pass at once, which needs no BoundPass.
  using Run = std::function<void(const PassMemory&, const RandomContext&)>;

  PassBinding() = default;
  template <class Bind>
  requires std::invocable<const Bind&, const PassMemory&> PassBinding(Bind bind, Run run = nullptr)
      : bind_(std::move(bind)), run_(std::move(run)) {}

  BoundPass operator()(const PassMemory& where) const { return bind_(where); }
  void run(const PassMemory& where, const RandomContext& step) const {
    run_ ? run_(where, step) : bind_(where)(step);
  }
  explicit operator bool() const { return static_cast<bool>(bind_); }

 private:
  std::function<BoundPass(const PassMemory&)> bind_;
  Run run_;
};

// A leaf of the fixed tree over shards. `additions` additions of the last two subtrees follow it.
// Then the root of number `root` is complete; -1: the subtree waits for its sibling.
struct ShardLeaf {
  int64_t rows = 0;
  int additions = 0;
  int root = -1;
};

// A subtree whose sum is wanted, with one address for each result of a SumOverShards.
struct ShardRoot {
  std::vector<void*> writes;
};

// Which part of the results of a SumOverShards to write: some columns of one of its update ranges.
struct ShardBlock {
  int64_t update_range = 0;
  // Of the first result's rows, whose dimensions after 0 are one. Begins at a multiple of
  // kBlockColumns. The other results are written with column 0.
  IndexRange columns = {};
  // Each address of the roots is that of the block alone, whose rows follow each other. Otherwise
  // it is that of the whole result.
  bool alone = false;
  // Arrays of the first result's shape that the caller uses next. Their elements of this block are
  // brought into the cache while the sums are computed.
  std::span<const float* const> used_next = {};
};

// The gradients of parameters, summed over shards by the fixed tree without a copy for each shard.
// Every shard's rows are kept first; then threads divide the update ranges of the sum. The bits are
// those of the pass for each shard, added by the tree. Functions are thread-safe for different rows
// and update ranges.
struct SumOverShards {
  // Memory for the kept rows of all leaves, aligned to cache lines.
  std::function<size_t(std::span<const ShardLeaf> leaves)> kept_bytes;
  // Keeps the operands of rows [rows.first, rows.end()), which are those of whole leaves. The rows
  // of all leaves are numbered one after another. `reads`: as of the pass, for these rows alone.
  std::function<void(std::span<void* const> reads, const IndexRange& rows,
                     std::span<const ShardLeaf> leaves, void* kept)>
      keep;
  // Writes a block of the results.
  std::function<void(const void* kept, std::span<const ShardLeaf> leaves,
                     std::span<const ShardRoot> roots, const ShardBlock& block)>
      add;
  int64_t update_ranges = 0;
  int64_t columns = 0;  // of a row of the first result

  bool defined() const { return static_cast<bool>(add); }
};

// Immutable. Threads share it, and each binds it to its own memory.
struct Pass {
  std::vector<Operand> reads;
  std::vector<Operand> writes;
  size_t scratch_bytes = 0;
  PassBinding bind;
  // The pass copies its first input to its only result without change, so a plan may use the
  // input's memory instead of running the pass.
  bool copies = false;
  // Indices into `reads` of operands whose memory the first result may overwrite, if both have the
  // same number of bytes. The preferred operand comes first.
  std::vector<int> in_place = {};
  // How several shards compute the pass together; undefined if they cannot.
  SumOverShards over_shards = {};

  bool defined() const { return static_cast<bool>(bind); }
};

// One op compiled for given shapes. Each backward pass writes the derivatives of a scalar with
// respect to some inputs (diff_input), given the derivatives with respect to the outputs
// (diff_output). Results overwrite memory; they are not accumulated.
struct Kernel {
  Pass forward;
  std::vector<Pass> backward;
  // The bits of a row's results depend on that row of the operands alone, not on the number of
  // rows. This does not concern gradients of parameters, which are sums over rows.
  bool rows_apart = false;
};

}  // namespace lockstep::kernels
