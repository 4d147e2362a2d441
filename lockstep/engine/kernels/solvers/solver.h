// One update of a parameter by its solver, in one pass over memory. All operations are elementwise,
// and all arrays have `count` elements. `gradient_sum` is g summed over observations.
//
// add: sum[i] = a[i] + b[i], one addition of the fixed tree over shards. May be in place.
// sum_leaves: all additions of the tree, whose nodes over n leaves split at the largest power of
// two below n. Leaf after leaf, sums of 1, 2, 4, ... leaves are combined like the digits of a
// counter; the sums that are left are added from the last one on.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::kernels {

// The sums of sum_leaves that exist at the same time: more leaves than 2^31 are not possible.
inline constexpr int kTreeSums = 31;

// g = gradient_sum / observations + l2 * w; v = momentum * v - rate * g; w = w + v, or with
// `nesterov` w = w + (momentum * v - rate * g).
struct SgdmUpdate {
  float observations = 1;  // number of observations in gradient_sum
  float rate = 0, momentum = 0, l2 = 0;
  int32_t nesterov = 0;  // 1: yes
};

// g as above; m = beta1 * m + (1 - beta1) * g; s = beta2 * s + (1 - beta2) * g * g;
// w = w - rate * m / (sqrt(s) * root_correction + epsilon) - decay * w. The rate includes the
// correction of the first moment: rate = learning rate / (1 - beta1^t), root_correction = 1 /
// sqrt(1 - beta2^t) (Kingma, Ba 2015, section 2).
struct AdamUpdate {
  float observations = 1;
  float rate = 0;
  double beta1 = 0, beta2 = 0;  // in f32, 1 - beta would be off by 1e-5
  float root_correction = 1, epsilon = 0, l2 = 0;
  // Decoupled weight decay, not part of the gradient (Loshchilov, Hutter 2019). Includes the
  // learning rate.
  float decay = 0;
};

// g as above; s = decay * s + (1 - decay) * g * g; w = w - rate * g / (sqrt(s) + epsilon)
// (Tieleman, Hinton 2012).
struct RmspropUpdate {
  float observations = 1;
  float rate = 0;
  double decay = 0;
  float epsilon = 0, l2 = 0;
};

// Update of many parameters at once, for back ends that support it. The back end's memory holds the
// arrays and the update of each parameter, and the blocks of kUpdateBlock elements into which
// parameters are divided (a parameter's last block may be shorter). The arguments of a call stay
// the same from one update to the next, so that it can be recorded.
struct ParameterArrays {
  float *w = nullptr, *first = nullptr, *second = nullptr;  // second: only Adam
  const float* gradient_sum = nullptr;
  int64_t count = 0;
};
struct UpdateBlock {
  int64_t parameter = 0, first = 0;  // first: the block's first element
};
inline constexpr int64_t kUpdateBlock = 1024;

template <class Update>
struct Updates {
  const ParameterArrays* arrays = nullptr;  // one per parameter
  const Update* updates = nullptr;          // one per parameter
  const UpdateBlock* blocks = nullptr;
  int64_t block_count = 0;
};

}  // namespace lockstep::kernels
