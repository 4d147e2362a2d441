#include "lockstep/engine/kernels/reductions/reduce.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "lockstep/engine/kernels/cpu/elementwise/expression_stream.h"
#include "lockstep/engine/kernels/cpu/reductions/reduce_loops.h"
#include "lockstep/engine/kernels/cpu/rows.h"
#include "lockstep/engine/kernels/reductions/reduce_axes.h"

namespace lockstep::kernels::cpu {
namespace {

// Columns that are reduced at a time: their running results stay in the L1 cache.
constexpr int64_t kColumnsOfReduction = 1024;
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
float rounded(Reduction kind, double factor, T result) {
  if (kind == Reduction::sum) return static_cast<float>(factor * static_cast<double>(result));
  return static_cast<float>(result);
}

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
  float rounded(T result) const { return cpu::rounded<T>(kind_, factor_, result); }

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
      for (int64_t c = 0; c < width; c += kColumnsOfReduction) {
        const int64_t count = std::min(kColumnsOfReduction, width - c);
        T totals[kColumnsOfReduction];
        std::fill_n(totals, count, neutral_);
        Position position(a_.reduced);
        for (int64_t p = 0; p < positions;) {
          T block[kColumnsOfReduction];
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

// Reduces the results of an expression as they come: rows, which follow each other, or columns of
// positions that do. The order is that of Reducer.
template <class T>
class StreamReducer final : public ExpressionSink {
 public:
  // The most columns.
  static constexpr int64_t kMostColumns = kColumnsOfReduction;
  // Of scratch memory: elements that wait, and the running results of columns.
  static constexpr int64_t kWaiting =
      std::max(kReduceBlock, kPositionsTogether* kMostColumns) + ExpressionStream::kMostTogether;
  static constexpr int64_t kFloats =
      kWaiting + 2 * kMostColumns * static_cast<int64_t>(sizeof(double) / sizeof(float));

  static bool offers(const ReduceAxes& a) {
    if (a.kept.dims.size() > 1 || a.kept.positions() == 0) return false;
    if (a.has_rows) return a.row > 0 && a.reduced.dims.empty();
    return a.reduced.dims.size() == 1 && a.reduced.positions() > 0 &&
           a.kept.positions() <= kMostColumns;
  }

  StreamReducer(const ReduceAxes& axes, Reduction kind, double factor, const ReduceLoops<T>& loops,
                float* scratch, float* dst)
      : kind_(kind),
        factor_(factor),
        loops_(loops),
        neutral_(neutral_element<T>(kind)),
        rows_(axes.has_rows),
        row_(axes.has_rows ? axes.row : axes.kept.positions()),
        flush_at_(
            rows_ ? kReduceBlock
                  // Half as many where all would not stay in the first cache.
                  : row_ * (row_ > kMostColumns / 4 ? kPositionsTogether / 2 : kPositionsTogether)),
        buffer_(scratch),
        dst_(dst),
        total_(neutral_),
        totals_(reinterpret_cast<T*>(scratch + kWaiting)),
        block_(totals_ + kMostColumns) {
    if (rows_) return;
    std::fill_n(totals_, row_, neutral_);
    std::fill_n(block_, row_, neutral_);
  }

  float* begin(int64_t) override { return buffer_ + filled_; }
  void end(int64_t n) override {
    filled_ += n;
    if (filled_ >= flush_at_) flush();
  }
  // After the last element.
  void finish() {
    flush();
    if (rows_) return;
    join_block();
    for (int64_t i = 0; i < row_; ++i) dst_[i] = rounded<T>(kind_, factor_, totals_[i]);
  }

 private:
  // Reduces what is whole and keeps the rest.
  void flush() {
    const float* const end = buffer_ + filled_;
    const float* at = buffer_;
    if (!rows_) {
      take_positions(at, end);
    } else if (row_ > kReduceBlock) {
      take_segments(at, end);
    } else {
      take_rows(at, end);
    }
    filled_ = end - at;
    std::memmove(buffer_, at, static_cast<size_t>(filled_) * sizeof(float));
  }

  void take_rows(const float*& at, const float* end) {
    while (end - at >= row_) {
      const int64_t count = std::min(kOutputsTogether, (end - at) / row_);
      const float* from[kOutputsTogether];
      T totals[kOutputsTogether];
      for (int64_t i = 0; i < count; ++i, at += row_) {
        from[i] = at;
        totals[i] = neutral_;
      }
      loops_.reduce_rows(from, count, row_, totals);
      for (int64_t i = 0; i < count; ++i) *dst_++ = rounded<T>(kind_, factor_, totals[i]);
    }
  }

  void take_segments(const float*& at, const float* end) {
    for (;;) {
      const int64_t length = std::min(kReduceBlock, row_ - in_row_);
      if (end - at < length) return;
      T block = neutral_;
      loops_.reduce_rows(&at, 1, length, &block);
      at += length;
      total_ = join(kind_, total_, block);
      in_row_ += length;
      if (in_row_ < row_) continue;
      *dst_++ = rounded<T>(kind_, factor_, total_);
      total_ = neutral_;
      in_row_ = 0;
    }
  }

  void take_positions(const float*& at, const float* end) {
    while (end - at >= row_) {
      const int64_t count =
          std::min({kPositionsTogether, (end - at) / row_, kReducePositions - in_block_});
      const float* from[kPositionsTogether];
      for (int64_t i = 0; i < count; ++i, at += row_) from[i] = at;
      loops_.add_columns(from, count, row_, block_);
      in_block_ += count;
      if (in_block_ == kReducePositions) join_block();
    }
  }
  void join_block() {
    if (in_block_ == 0) return;
    for (int64_t i = 0; i < row_; ++i) totals_[i] = join(kind_, totals_[i], block_[i]);
    std::fill_n(block_, row_, neutral_);
    in_block_ = 0;
  }

  const Reduction kind_;
  const double factor_;
  const ReduceLoops<T> loops_;
  const T neutral_;
  const bool rows_;
  const int64_t row_, flush_at_;  // elements of a row, or columns
  float* const buffer_;
  float* dst_;
  int64_t filled_ = 0;
  int64_t in_row_ = 0, in_block_ = 0;  // elements of the row, positions of the block so far
  T total_;
  T *const totals_, *const block_;  // of columns
};

// Calls call() with the loops for a kind.
template <class Call>
void with_loops(Reduction kind, const Call& call) {
  switch (kind) {
    case Reduction::sum:
      return call(sum_loops());
    case Reduction::product:
      return call(product_loops());
    case Reduction::maximum:
      return call(maximum_loops());
    case Reduction::minimum:
      return call(minimum_loops());
  }
}

// A pass over what the program computes, without a copy of it where the axes allow that.
Pass reduce_expression(const ReduceProblem& p, std::shared_ptr<const ReduceAxes> axes,
                       const TensorSpec& dst) {
  auto stream = std::make_shared<const ExpressionStream>(p.of);
  std::vector<Operand> reads;
  for (size_t i = 0; i < p.of.src.size(); ++i) {
    reads.push_back(input(static_cast<int>(i), p.of.src[i]));
  }
  // In front of the scratch memory of the expression.
  const bool streams = StreamReducer<double>::offers(*axes);
  const int64_t floats = streams ? StreamReducer<double>::kFloats : p.src.shape.elements();
  const size_t before = static_cast<size_t>((floats + 15) / 16 * 16);
  return own_pass_with_scratch(
      std::move(reads), {output(0, dst)}, before * sizeof(float) + stream->scratch_bytes(),
      [=, kind = p.kind, factor = p.factor](void* const* r, void* const* w, void* scratch) {
        float* const buffer = static_cast<float*>(scratch);
        with_loops(kind, [&]<class T>(const ReduceLoops<T>& loops) {
          if (streams) {
            StreamReducer<T> reducer(*axes, kind, factor, loops, buffer, out(w, 0));
            stream->run(r, buffer + before, reducer);
            reducer.finish();
          } else {
            ExpressionMemory all(buffer);
            stream->run(r, buffer + before, all);
            Reducer<T>(*axes, kind, factor, loops).run(buffer, out(w, 0));
          }
        });
      });
}

}  // namespace

Kernel reduce(const ReduceProblem& p) {
  auto axes = std::make_shared<const ReduceAxes>(reduce_axes(p));
  std::vector<int64_t> dims;
  for (int axis = 0; axis < p.src.shape.rank(); ++axis) {
    if (std::count(p.axes.begin(), p.axes.end(), axis) == 0) dims.push_back(p.src.shape[axis]);
  }
  const TensorSpec dst = plain_spec(Shape(dims));
  Kernel kernel;
  if (!p.of.program.empty()) {
    kernel.forward = reduce_expression(p, axes, dst);
  } else {
    kernel.forward = own_pass({input(0, p.src.plain())}, {output(0, dst)},
                              [axes, kind = p.kind, factor = p.factor](
                                  void* const* r, void* const* w, const RandomContext&) {
                                with_loops(kind, [&]<class T>(const ReduceLoops<T>& loops) {
                                  Reducer<T>(*axes, kind, factor, loops).run(in(r, 0), out(w, 0));
                                });
                              });
  }
  kernel.rows_apart = p.src.shape.rank() > 0 && (p.axes.empty() || p.axes[0] > 0);
  return kernel;
}

}  // namespace lockstep::kernels::cpu
