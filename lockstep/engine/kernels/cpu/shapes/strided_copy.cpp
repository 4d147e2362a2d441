#include "lockstep/engine/kernels/shapes/strided_copy.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lockstep/base/numeric/clones.h"
#include "lockstep/engine/kernels/cpu/rows.h"
#include "lockstep/engine/kernels/cpu/transpose.h"
#include "lockstep/engine/kernels/shapes/strided_axes.h"

namespace lockstep::kernels::cpu {
namespace {

// Elements of any type with this size.
using Word = uint32_t __attribute__((may_alias));
using Long = uint64_t __attribute__((may_alias));
using Byte = uint8_t;

// Runs of fewer bytes are copied by a loop, because memcpy() takes longer to begin.
constexpr int64_t kShortRun = 64;
// Elements of a side of the blocks that are transposed: a cache line of words.
constexpr int64_t kTransposedBlock = 16;
// Elements of a narrow matrix that stay in the first cache while its other side is walked.
constexpr int64_t kStrip = 512;

template <class T>
LOCKSTEP_INLINE void copy_run(const T* __restrict from, T* __restrict to, const StridedAxis& a) {
  if (a.to == 1 && a.from == 1) {
    for (int64_t i = 0; i < a.size; ++i) to[i] = from[i];
  } else if (a.to == 1 && a.from == 0) {
    const T value = *from;
    for (int64_t i = 0; i < a.size; ++i) to[i] = value;
  } else if (a.to == 1 && a.from == -1) {
    for (int64_t i = 0; i < a.size; ++i) to[i] = from[-i];
  } else if (a.to == 1 && a.from == 2) {
    for (int64_t i = 0; i < a.size; ++i) to[i] = from[2 * i];
  } else if (a.to == 1) {
    for (int64_t i = 0; i < a.size; ++i) to[i] = from[i * a.from];
  } else if (a.from == 1) {
    for (int64_t i = 0; i < a.size; ++i) to[i * a.to] = from[i];
  } else {
    for (int64_t i = 0; i < a.size; ++i) to[i * a.to] = from[i * a.from];
  }
}

// A block of kTransposedBlock x kTransposedBlock: to[i * to_row + j] = from[j * from_row + i].
// Whole lines are read and written one after another, because rows may lie powers of two apart, and
// caches have few sets for such addresses.
LOCKSTEP_INLINE void transpose_block(const Word* from, int64_t from_row, Word* to, int64_t to_row) {
  float block[kTransposedBlock * kTransposedBlock];
  for (int64_t j = 0; j < kTransposedBlock; j += 4) {
    float lines[4][kTransposedBlock];
    const float* four[4];
    for (int64_t k = 0; k < 4; ++k) {
      std::memcpy(lines[k], from + (j + k) * from_row, sizeof lines[k]);
      four[k] = lines[k];
    }
    for (int64_t i = 0; i < kTransposedBlock; i += 4)
      transpose_four(four, i, block + i * kTransposedBlock + j, kTransposedBlock);
  }
  for (int64_t i = 0; i < kTransposedBlock; ++i) {
    std::memcpy(to + i * to_row, block + i * kTransposedBlock, kTransposedBlock * sizeof(float));
  }
}
LOCKSTEP_INLINE void transpose_block(const Byte* from, int64_t from_row, Byte* to, int64_t to_row) {
  Byte block[kTransposedBlock * kTransposedBlock];
  for (int64_t j = 0; j < kTransposedBlock; ++j) {
    std::memcpy(block + j * kTransposedBlock, from + j * from_row, kTransposedBlock);
  }
  for (int64_t i = 0; i < kTransposedBlock; ++i) {
    for (int64_t j = 0; j < kTransposedBlock; ++j)
      to[i * to_row + j] = block[j * kTransposedBlock + i];
  }
}

// `inner` has steps of 1 in dst, `outer` in src.
template <class T>
LOCKSTEP_INLINE void transpose(const T* from, T* to, const StridedAxis& outer,
                               const StridedAxis& inner) {
  const int64_t rows = outer.size / kTransposedBlock * kTransposedBlock,
                columns = inner.size / kTransposedBlock * kTransposedBlock;
  for (int64_t i = 0; i < rows; i += kTransposedBlock) {
    for (int64_t j = 0; j < columns; j += kTransposedBlock) {
      transpose_block(from + j * inner.from + i, inner.from, to + i * outer.to + j, outer.to);
    }
  }
  for (int64_t i = rows; i < outer.size; ++i) {
    copy_run(from + i, to + i * outer.to, {columns, inner.from, 1});
  }
  for (int64_t first = 0; first < outer.size && columns < inner.size; first += kStrip) {
    const int64_t count = std::min(kStrip, outer.size - first);
    for (int64_t j = columns; j < inner.size; ++j) {
      copy_run(from + j * inner.from + first, to + first * outer.to + j, {count, 1, outer.to});
    }
  }
}

template <class T>
LOCKSTEP_INLINE void copy_matrix(const T* from, T* to, const StridedAxis& outer,
                                 const StridedAxis& inner) {
  if (inner.to == 1 && outer.from == 1 && inner.from != 1) {
    transpose(from, to, outer, inner);
    return;
  }
  const bool long_runs =
      inner.to == 1 && inner.from == 1 && inner.size * static_cast<int64_t>(sizeof(T)) >= kShortRun;
  for (int64_t i = 0; i < outer.size; ++i, from += outer.from, to += outer.to) {
    if (long_runs) {
      std::memcpy(to, from, static_cast<size_t>(inner.size) * sizeof(T));
    } else {
      copy_run(from, to, inner);
    }
  }
}

LOCKSTEP_CLONES void copy_words(const Word* from, Word* to, const StridedAxis& outer,
                                const StridedAxis& inner) {
  copy_matrix(from, to, outer, inner);
}
LOCKSTEP_CLONES void copy_bytes(const Byte* from, Byte* to, const StridedAxis& outer,
                                const StridedAxis& inner) {
  copy_matrix(from, to, outer, inner);
}
void copy(const Word* from, Word* to, const StridedAxis& outer, const StridedAxis& inner) {
  copy_words(from, to, outer, inner);
}
void copy(const Byte* from, Byte* to, const StridedAxis& outer, const StridedAxis& inner) {
  copy_bytes(from, to, outer, inner);
}

// Of indices, which are few.
void copy(const Long* from, Long* to, const StridedAxis& outer, const StridedAxis& inner) {
  for (int64_t i = 0; i < outer.size; ++i, from += outer.from, to += outer.to) {
    copy_run(from, to, inner);
  }
}

// The loops from `axis` on, of which the last two are a matrix.
template <class T>
void copy_all(const T* from, T* to, const std::vector<StridedAxis>& axes, size_t axis) {
  if (axis + 2 == axes.size()) {
    copy(from, to, axes[axis], axes[axis + 1]);
    return;
  }
  const StridedAxis& a = axes[axis];
  for (int64_t i = 0; i < a.size; ++i) {
    copy_all(from + i * a.from, to + i * a.to, axes, axis + 1);
  }
}

// At least two loops. If the steps of the last one are long in src, the loop with the shortest
// steps there comes before it, so that blocks can be transposed.
std::vector<StridedAxis> arranged(std::vector<StridedAxis> axes) {
  while (axes.size() < 2) axes.insert(axes.begin(), {1, 0, 0});
  const auto last = axes.end() - 1;
  if (last->to != 1 || last->from == 1) return axes;
  const auto other =
      std::find_if(axes.begin(), last, [](const StridedAxis& a) { return a.from == 1; });
  if (other != last) std::rotate(other, other + 1, last);
  return axes;
}

template <class T>
Pass copying(const StridedCopyProblem& p, StridedLoops loops) {
  const TensorSpec dst = plain_spec(p.dst, p.src.dtype);
  loops.axes = arranged(std::move(loops.axes));
  const size_t bytes = dst.bytes();
  return own_pass({input(0, p.src.plain())}, {output(0, dst)},
                  [=](void* const* r, void* const* w, const RandomContext&) {
                    if (loops.clears) std::memset(w[0], 0, bytes);
                    if (loops.count == 0) return;
                    copy_all(in<T>(r, 0) + loops.from, out<T>(w, 0) + loops.to, loops.axes, 0);
                  });
}

}  // namespace

Kernel strided_copy(const StridedCopyProblem& p) {
  const StridedLoops loops = strided_loops(p);
  Kernel kernel;
  kernel.forward = p.src.dtype == DType::u8    ? copying<Byte>(p, loops)
                   : p.src.dtype == DType::i64 ? copying<Long>(p, loops)
                                               : copying<Word>(p, loops);
  kernel.forward.copies = loops.copies;
  kernel.rows_apart = loops.rows_apart;
  return kernel;
}

}  // namespace lockstep::kernels::cpu
