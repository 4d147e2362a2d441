// One update of a learnable by its solver, in one pass over memory. Element by element; all arrays
// have `count` elements.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::kernels {

// g = gradient_sum / observations + l2 * w; v = momentum * v - rate * g; w = w + v.
struct SgdmUpdate {
  float observations = 1;  // the gradient comes as a sum over so many
  float rate = 0, momentum = 0, l2 = 0;
};

// g as above; m = beta1 * m + (1 - beta1) * g; s = beta2 * s + (1 - beta2) * g * g;
// w = w - rate * m / (sqrt(s) * root_correction + epsilon) - decay * w, where rate has the first
// moment's correction in it: rate = learning rate / (1 - beta1^t), root_correction = 1 / sqrt(1 -
// beta2^t) (Kingma, Ba 2015, section 2).
struct AdamUpdate {
  float observations = 1;
  float rate = 0;
  double beta1 = 0, beta2 = 0;  // 1 - beta taken in f32 would be off by 1e-5
  float root_correction = 1, epsilon = 0, l2 = 0;
  // Taken off w besides, times w: the decay that is no part of the gradient (Loshchilov, Hutter
  // 2019), learning rate included.
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

// Many learnables updated at once, by a back end that does so: in its memory lie each one's arrays,
// each one's update, and the blocks of kUpdateBlock elements (the last of a learnable: fewer) that
// they are cut into. Nothing else changes from one update to the next, so that it can be recorded.
struct LearnableArrays {
  float *w = nullptr, *first = nullptr, *second = nullptr;  // second: adam's alone
  const float* gradient_sum = nullptr;
  int64_t count = 0;
};
struct UpdateBlock {
  int64_t learnable = 0, first = 0;  // its first element
};
inline constexpr int64_t kUpdateBlock = 1024;

template <class Update>
struct Updates {
  const LearnableArrays* arrays = nullptr;  // by learnable
  const Update* updates = nullptr;          // by learnable
  const UpdateBlock* blocks = nullptr;
  int64_t block_count = 0;
};

namespace cpu {
void sgdm(float* w, float* v, const float* gradient_sum, size_t count, const SgdmUpdate& u);
void adam(float* w, float* m, float* s, const float* gradient_sum, size_t count,
          const AdamUpdate& u);
void rmsprop(float* w, float* s, const float* gradient_sum, size_t count, const RmspropUpdate& u);
}  // namespace cpu

}  // namespace lockstep::kernels
