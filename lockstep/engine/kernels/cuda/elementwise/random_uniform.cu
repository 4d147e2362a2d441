#include "lockstep/engine/kernels/cuda/passes.h"
#include "lockstep/engine/kernels/cuda/philox.h"
#include "lockstep/engine/kernels/elementwise/random_uniform.h"

namespace lockstep::kernels::cuda {
namespace {

// Thread i writes four adjacent elements, which share a block of random words.
struct Draw {
  uint64_t draw;
  const RandomContext* step;
  float* y;
  int64_t columns, groups;  // of one observation; a group has up to four elements

  __device__ void operator()(int64_t i) const {
    const Division at = divide(i, groups);
    const DeviceRandomStream stream({step->seed, RandomUse::draw, draw, step->iteration,
                                     static_cast<uint64_t>(step->first_row + at.quotient)});
    const int64_t first = at.remainder * 4;
    const Words4 words = stream.block(static_cast<uint64_t>(at.remainder));
    for (int k = 0; k < 4 && first + k < columns; ++k) {
      y[at.quotient * columns + first + k] =
          static_cast<float>(static_cast<int32_t>(words.word[k] >> 8)) * 0x1p-24f;
    }
  }
};

}  // namespace

Kernel random_uniform(const RandomUniformProblem& p) {
  const int64_t rows = p.dst[0], count = p.dst.elements(), columns = rows == 0 ? 0 : count / rows;
  Kernel kernel;
  kernel.forward =
      own_pass({}, {output(0, plain_spec(p.dst))}, [rows, columns, draw = p.draw](const Bound& b) {
        const int64_t groups = (columns + 3) / 4;
        launch_each("random_uniform", rows * groups, b.stream,
                    Draw{draw, b.step, b.out(0), columns, groups});
      });
  return kernel;
}

}  // namespace lockstep::kernels::cuda
