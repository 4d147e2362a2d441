#include "lockstep/engine/kernels/reductions/reduce.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "lockstep/engine/kernels/cpu/reductions/reduce_loops.h"
#include "lockstep/engine/kernels/cpu/rows.h"
#include "lockstep/engine/kernels/reductions/reduce_axes.h"

namespace lockstep::kernels::cpu {
namespace {

// Columns that are reduced at a time: their running results stay in the L1 cache.
constexpr int64_t kColumns = 1024;
// Results of whole rows that are computed at a time.
constexpr int64_t kOutputsTogether = 64;

// The offsets of the positions of some axes in row-major order.
class Position {
 public:
  explicit Position(const StridedAxes& axes, size_t count)
      : axes_(axes), index_(count), count_(count) {}
  explicit Position(const StridedAxes& axes) : Position(axes, axes.dims.size()) {}

  int64_t offset() const { return offset_; }
  void next() {
    for (size_t axis = count_; axis-- > 0;) {
      offset_ += axes_.strides[axis];
      if (++index_[axis] < axes_.dims[axis]) return;
      offset_ -= axes_.dims[axis] * axes_.strides[axis];
      index_[axis] = 0;
    }
  }

 private:
  const StridedAxes& axes_;
  std::vector<int64_t> index_;
  size_t count_;
  int64_t offset_ = 0;
};

template <class T>
class Reducer {
 public:
  Reducer(const ReduceAxes& axes, Reduction kind, double factor, const ReduceLoops<T>& loops)
      : a_(axes), kind_(kind), factor_(factor), loops_(loops), neutral_(neutral_element<T>(kind)) {}

  void run(const float* x, float* dst) const {
    if (a_.has_rows) {
      rows(x, dst);
    } else {
      columns(x, dst);
    }
  }

 private:
  float rounded(T result) const {
    if (kind_ == Reduction::sum) return static_cast<float>(factor_ * static_cast<double>(result));
    return static_cast<float>(result);
  }

  void rows(const float* x, float* dst) const {
    const int64_t outputs = a_.kept.positions();
    const bool whole_rows = a_.segments == 1 && a_.reduced.positions() == 1;
    const int64_t most = whole_rows ? kOutputsTogether : kRowsTogether;
    Position output(a_.kept);
    for (int64_t first = 0; first < outputs; first += most) {
      const int64_t count = std::min(most, outputs - first);
      const float* from[kOutputsTogether] = {};
      T totals[kOutputsTogether];
      for (int64_t i = 0; i < count; ++i, output.next()) {
        from[i] = x + output.offset();
        totals[i] = neutral_;
      }
      if (whole_rows) {
        loops_.reduce_rows(from, count, a_.row, totals);
      } else if (a_.segments == 1) {
        short_rows(from, count, totals);
      } else {
        for (int64_t i = 0; i < count; ++i) long_rows(from[i], totals[i]);
      }
      for (int64_t i = 0; i < count; ++i) dst[first + i] = rounded(totals[i]);
    }
  }

  // Several results at once; a block has one or several positions.
  void short_rows(const float* const* from, int64_t count, T* totals) const {
    const int64_t positions = a_.reduced.positions();
    Position position(a_.reduced);
    for (int64_t p = 0; p < positions;) {
      T lanes[kRowsTogether * kReduceLanes];
      std::fill_n(lanes, count * kReduceLanes, neutral_);
      for (const int64_t end = std::min(p + a_.block_positions, positions); p < end; ++p) {
        const float* at[kRowsTogether];
        for (int64_t i = 0; i < count; ++i) at[i] = from[i] + position.offset();
        loops_.add_rows(at, count, a_.row, lanes);
        position.next();
      }
      loops_.fold_lanes(lanes, count, totals);
    }
  }

  // One result; several segments at once.
  void long_rows(const float* from, T& total) const {
    const int64_t positions = a_.reduced.positions();
    Position position(a_.reduced);
    for (int64_t p = 0; p < positions; ++p, position.next()) {
      const float* const row = from + position.offset();
      for (int64_t s = 0; s < a_.segments;) {
        const float* at[kRowsTogether];
        const int64_t whole = a_.row / kReduceBlock - s;
        const int64_t count = std::clamp<int64_t>(whole, 1, kRowsTogether);
        for (int64_t i = 0; i < count; ++i) at[i] = row + (s + i) * kReduceBlock;
        T blocks[kRowsTogether];
        std::fill_n(blocks, count, neutral_);
        loops_.reduce_rows(at, count, std::min(kReduceBlock, a_.row - s * kReduceBlock), blocks);
        for (int64_t i = 0; i < count; ++i) total = join(kind_, total, blocks[i]);
        s += count;
      }
    }
  }

  void columns(const float* x, float* dst) const {
    const size_t outer = a_.kept.dims.empty() ? 0 : a_.kept.dims.size() - 1;
    const int64_t width = a_.kept.dims.empty() ? 1 : a_.kept.dims.back();
    const int64_t outputs = a_.kept.positions(), positions = a_.reduced.positions();
    Position output(a_.kept, outer);
    for (int64_t first = 0; first < outputs; first += width, output.next()) {
      for (int64_t c = 0; c < width; c += kColumns) {
        const int64_t count = std::min(kColumns, width - c);
        T totals[kColumns];
        std::fill_n(totals, count, neutral_);
        Position position(a_.reduced);
        for (int64_t p = 0; p < positions;) {
          T block[kColumns];
          std::fill_n(block, count, neutral_);
          for (const int64_t end = std::min(p + kReducePositions, positions); p < end;) {
            const float* at[kPositionsTogether];
            const int64_t some = std::min(kPositionsTogether, end - p);
            for (int64_t i = 0; i < some; ++i, position.next()) {
              at[i] = x + output.offset() + c + position.offset();
            }
            loops_.add_columns(at, some, count, block);
            p += some;
          }
          for (int64_t i = 0; i < count; ++i) totals[i] = join(kind_, totals[i], block[i]);
        }
        for (int64_t i = 0; i < count; ++i) dst[first + c + i] = rounded(totals[i]);
      }
    }
  }

  const ReduceAxes& a_;
  const Reduction kind_;
  const double factor_;
  const ReduceLoops<T> loops_;
  const T neutral_;
};

}  // namespace

Kernel reduce(const ReduceProblem& p) {
  auto axes = std::make_shared<const ReduceAxes>(reduce_axes(p));
  std::vector<int64_t> dims;
  for (int axis = 0; axis < p.src.shape.rank(); ++axis) {
    if (std::count(p.axes.begin(), p.axes.end(), axis) == 0) dims.push_back(p.src.shape[axis]);
  }
  Kernel kernel;
  kernel.forward = own_pass(
      {input(0, p.src.plain())}, {output(0, plain_spec(Shape(dims)))},
      [axes, kind = p.kind, factor = p.factor](void* const* r, void* const* w, const StepInfo&) {
        const float* const x = in(r, 0);
        float* const dst = out(w, 0);
        switch (kind) {
          case Reduction::sum:
            return Reducer<double>(*axes, kind, factor, sum_loops()).run(x, dst);
          case Reduction::product:
            return Reducer<double>(*axes, kind, factor, product_loops()).run(x, dst);
          case Reduction::maximum:
            return Reducer<float>(*axes, kind, factor, maximum_loops()).run(x, dst);
          case Reduction::minimum:
            return Reducer<float>(*axes, kind, factor, minimum_loops()).run(x, dst);
        }
      });
  kernel.rows_apart = p.src.shape.rank() > 0 && (p.axes.empty() || p.axes[0] > 0);
  return kernel;
}

}  // namespace lockstep::kernels::cpu
