// Convolution of 3 x 3 windows over images whose batch lies in a vector's lanes: of any number of
// channels as fast as of 16, where oneDNN fills channels up to blocks of 16 and multiplies zeros.
// Thread-safe; nothing allocates.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::kernels::cpu {

// Images lie as lanes_layout.h says, n a multiple of kLanes, at addresses that are multiples of 64;
// weights and their gradients
// row-major, filters x channels x 3 x 3. Windows move by one, and zeros surround the images, so
// that results have their size.
struct LanesConvolution {
  int64_t n = 0, channels = 0, filters = 0, rows = 0, columns = 0;

  // Memory that each of the functions needs.
  size_t forward_scratch() const;
  size_t data_scratch() const { return forward_scratch(); }
  size_t weights_scratch() const;
};

// y: filters x rows x columns x n, from x: channels x rows x columns x n. `bias`: by filter, or
// null.
void lanes_convolution(const LanesConvolution& p, const float* x, const float* weights,
                       const float* bias, float* y, float* scratch);
// dx from dy.
void lanes_convolution_data(const LanesConvolution& p, const float* dy, const float* weights,
                            float* dx, float* scratch);
// dweights, and dbias unless it is null, from x and dy.
void lanes_convolution_weights(const LanesConvolution& p, const float* x, const float* dy,
                               float* dweights, float* dbias, float* scratch);

}  // namespace lockstep::kernels::cpu
