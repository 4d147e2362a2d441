#include <type_traits>

#include "lockstep/engine/kernels/cuda/elements.h"
#include "lockstep/engine/kernels/cuda/passes.h"

namespace lockstep::kernels::cuda {
namespace {

// A matrix is transposed in tiles of kTile x kTile in shared memory. Rows of a tile have one
// element of padding, so that a column spreads over the banks. A block has kTile x (kBlock / kTile)
// threads.
constexpr int kTile = 32;

struct Matrices {
  int64_t rows, columns;            // of each source matrix
  int64_t row_tiles, column_tiles;  // of each matrix
};

// Returns x, converted to To if the types differ.
template <class To, class From>
__device__ To converted(From x) {
  if constexpr (std::is_same_v<To, From>) {
    return x;
  } else {
    return rounded<To>(value_of(x));
  }
}

template <class From, class To>
__global__ void transpose_tiles(Matrices m, const From* from, To* to) {
  auto* tile = shared_memory<From>();
  const int x = static_cast<int>(threadIdx.x) % kTile, y = static_cast<int>(threadIdx.x) / kTile;
  const Division matrix = divide(blockIdx.x, m.row_tiles * m.column_tiles);
  const Division of_tile = divide(matrix.remainder, m.column_tiles);
  const int64_t first_row = of_tile.quotient * kTile, first_column = of_tile.remainder * kTile;
  from += matrix.quotient * m.rows * m.columns;
  to += matrix.quotient * m.rows * m.columns;
  for (int i = y; i < kTile; i += kBlock / kTile) {
    if (first_row + i < m.rows && first_column + x < m.columns) {
      tile[i * (kTile + 1) + x] = from[(first_row + i) * m.columns + first_column + x];
    }
  }
  __syncthreads();
  for (int i = y; i < kTile; i += kBlock / kTile) {
    if (first_column + i < m.columns && first_row + x < m.rows) {
      to[(first_column + i) * m.rows + first_row + x] = converted<To>(tile[x * (kTile + 1) + i]);
    }
  }
}

template <class From, class To = From>
Pass transposing(const TensorSpec& from, const TensorSpec& to, int64_t count, int64_t rows,
                 int64_t columns) {
  const Matrices m{rows, columns, (rows + kTile - 1) / kTile, (columns + kTile - 1) / kTile};
  const Grid grid{.blocks = count * m.row_tiles * m.column_tiles,
                  .shared_bytes = kTile * (kTile + 1) * sizeof(From)};
  return own_pass({input(0, from)}, {output(0, to)}, [=](const Bound& b) {
    launch("change of layout", transpose_tiles<From, To>, grid, b.stream, m, b.in<From>(0),
           b.out<To>(0));
  });
}

struct Zero {
  uint8_t* bytes;
  __device__ void operator()(int64_t i) const { bytes[i] = 0; }
};

struct Add {
  __device__ float operator()(float a, float b) const { return a + b; }
};

struct Same {
  __device__ float operator()(float x) const { return x; }
};

// Whether a and b can be converted to each other.
bool convertible(DType a, DType b) {
  return (a == DType::f32 && is_narrow(b)) || (b == DType::f32 && is_narrow(a));
}

template <class From, class To>
Pass converting(const TensorSpec& from, const TensorSpec& to) {
  return own_pass(
      {input(0, from)}, {output(0, to)}, [count = from.shape.elements()](const Bound& b) {
        launch_map("change of type", count, b.stream, Same(), b.out<To>(0), b.in<From>(0));
      });
}

bool known(const TensorSpec& spec) {
  return spec.row_major() || dynamic_cast<const NhwcLayout*>(spec.layout.get());
}

}  // namespace

Pass reorder(const TensorSpec& from, const TensorSpec& to) {
  if (!known(from) || !known(to)) {
    throw Unsupported("[kernels] the GPU does not support this change of layout: " +
                      from.to_string() + " to " + to.to_string());
  }
  const bool same_type = from.dtype == to.dtype, narrows = is_narrow(to.dtype);
  if (!same_type && !convertible(from.dtype, to.dtype)) {
    throw Unsupported("[kernels] the GPU does not support this change of type: " +
                      from.to_string() + " to " + to.to_string());
  }
  const DType narrow = narrows ? to.dtype : from.dtype;
  if (from.row_major() == to.row_major() && !same_type) {
    return for_elements(narrow, [&]<class T>(T) {
      return narrows ? converting<float, T>(from, to) : converting<T, float>(from, to);
    });
  }
  if (from.row_major() == to.row_major()) {
    return own_pass({input(0, from)}, {output(0, to)}, [bytes = from.bytes()](const Bound& b) {
      launch_copy("change of layout", b.out(0), b.in(0), bytes, b.stream);
    });
  }
  const Extents e = extents_of(from.shape);
  const int64_t rows = from.row_major() ? e.channels : e.space;
  const int64_t columns = from.row_major() ? e.space : e.channels;
  if (!same_type) {
    return for_elements(narrow, [&]<class T>(T) {
      return narrows ? transposing<float, T>(from, to, e.outer, rows, columns)
                     : transposing<T, float>(from, to, e.outer, rows, columns);
    });
  }
  switch (size_of(from.dtype)) {
    case 1:
      return transposing<uint8_t>(from, to, e.outer, rows, columns);
    case 2:
      return transposing<uint16_t>(from, to, e.outer, rows, columns);
    case 8:
      return transposing<uint64_t>(from, to, e.outer, rows, columns);
    default:
      return transposing<uint32_t>(from, to, e.outer, rows, columns);
  }
}

Pass accumulate(const TensorSpec& spec) {
  return for_elements(spec.dtype, [&]<class T>(T) {
    return own_pass({input(0, spec), input(1, spec)}, {output(0, spec)},
                    [count = static_cast<int64_t>(spec.bytes() / sizeof(T))](const Bound& b) {
                      launch_map("accumulate", count, b.stream, Add(), b.out<T>(0), b.in<T>(0),
                                 b.in<T>(1));
                    });
  });
}

Pass zero(const TensorSpec& spec) {
  return own_pass({}, {output(0, spec)},
                  [count = static_cast<int64_t>(spec.bytes())](const Bound& b) {
                    launch_each("zero", count, b.stream, Zero{b.out<uint8_t>(0)});
                  });
}

void add(const float* a, const float* b, float* sum, size_t count, void* stream) {
  launch_map("add", static_cast<int64_t>(count), stream, Add(), sum, a, b);
}

}  // namespace lockstep::kernels::cuda
