#include "tests/engine/cuda/stand_in/cudnn.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "lockstep/base/numeric/bfloat16.h"
#include "lockstep/base/numeric/float16.h"

namespace {

constexpr size_t kWorkspace = 300;
// The algorithms that the heuristics propose. By default only the last may be chosen for floats,
// and the one before it for bfloat16.
constexpr int kVarying = 4, kTensorCores = 3, kGood = 2;
constexpr int kCandidates = 12;

int pixels(const cudnnTensorStruct& t) { return t.space[0] * t.space[1] * t.space[2]; }

// `pixel`: its number in row-major order.
size_t place(const cudnnTensorStruct& t, int n, int c, int pixel) {
  int at = n * t.strides[0] + c * t.strides[1];
  for (int a = 2; a >= 0; --a) {
    at += pixel % t.space[a] * t.strides[2 + a];
    pixel /= t.space[a];
  }
  return static_cast<size_t>(at);
}

void pack(cudnnTensorStruct& t, cudnnTensorFormat_t format) {
  const bool last = format == CUDNN_TENSOR_NHWC;
  int step = last ? t.c : 1;
  for (int a = 2; a >= 0; --a) {
    t.strides[2 + a] = step;
    step *= t.space[a];
  }
  t.strides[1] = last ? 1 : pixels(t);
  t.strides[0] = t.c * pixels(t);
}

bool is_packed(const cudnnTensorStruct& t, cudnnTensorFormat_t format) {
  cudnnTensorStruct packed = t;
  pack(packed, format);
  return std::equal(t.strides + 5 - t.axes, t.strides + 5, packed.strides + 5 - t.axes) &&
         std::equal(t.strides, t.strides + 2, packed.strides);
}

size_t elements(const cudnnTensorStruct& t) { return static_cast<size_t>(t.n * t.c * pixels(t)); }

// The pixel of x under element `element` of the window at pixel `to` of y; -1: none.
int pixel_under(const cudnnTensorStruct& x, const cudnnTensorStruct& w,
                const cudnnConvolutionStruct& conv, const cudnnTensorStruct& y, int element,
                int to) {
  int pixel = 0, unit = 1;
  for (int a = 2; a >= 0; --a) {
    const int at =
        to % y.space[a] * conv.stride[a] - conv.pad[a] + element % w.space[a] * conv.dilation[a];
    if (at < 0 || at >= x.space[a]) return -1;
    pixel += at * unit;
    unit *= x.space[a];
    to /= y.space[a];
    element /= w.space[a];
  }
  return pixel;
}

// Calls body(x index, w index, y index) for all products of the convolution.
template <class Body>
void for_products(const cudnnTensorStruct& x, const cudnnTensorStruct& w,
                  const cudnnConvolutionStruct& conv, const cudnnTensorStruct& y, Body body) {
  for (int n = 0; n < y.n; ++n) {
    for (int k = 0; k < y.c; ++k) {
      const int group = k / (w.n / conv.groups);
      for (int i = 0; i < pixels(y); ++i) {
        for (int c = 0; c < w.c; ++c) {
          for (int j = 0; j < pixels(w); ++j) {
            const int from = pixel_under(x, w, conv, y, j, i);
            if (from < 0) continue;
            body(place(x, n, group * w.c + c, from), place(w, k, c, j), place(y, n, k, i));
          }
        }
      }
    }
  }
}

bool fits(const cudnnTensorStruct& x, const cudnnTensorStruct& w,
          const cudnnConvolutionStruct& conv, const cudnnTensorStruct& y, int axis) {
  const int extent = conv.dilation[axis] * (w.space[axis] - 1) + 1;
  return y.space[axis] == (x.space[axis] + 2 * conv.pad[axis] - extent) / conv.stride[axis] + 1;
}

cudnnStatus_t supported(const cudnnTensorStruct& x, const cudnnFilterStruct& w,
                        const cudnnConvolutionStruct& conv, const cudnnTensorStruct& y) {
  const bool shapes = x.n == y.n && x.c == w.c * conv.groups && y.c == w.n &&
                      fits(x, w, conv, y, 0) && fits(x, w, conv, y, 1) && fits(x, w, conv, y, 2) &&
                      x.axes == conv.axes && w.axes == conv.axes && y.axes == conv.axes &&
                      is_packed(x, w.format) && is_packed(y, w.format);
  if (!shapes) return CUDNN_STATUS_BAD_PARAM;
  if (x.type != w.type || x.type != y.type) return CUDNN_STATUS_BAD_PARAM;
  const bool last = w.format == CUDNN_TENSOR_NHWC;
  const bool narrow = x.type != CUDNN_DATA_FLOAT;
  return (conv.groups > 1 && last) || (narrow && !last) ? CUDNN_STATUS_NOT_SUPPORTED
                                                        : CUDNN_STATUS_SUCCESS;
}

bool dilated_volumes(const cudnnConvolutionStruct& conv) {
  return conv.axes == 3 && std::max({conv.dilation[0], conv.dilation[1], conv.dilation[2]}) > 1;
}

// The deterministic algorithms come last, behind as many that vary as cuDNN has algorithms.
// `deterministic`: there are any.
template <class Perf>
cudnnStatus_t propose(cudnnDataType_t type, const cudnnConvolutionStruct& conv,
                      cudnnStatus_t status, int most, int* count, Perf* found,
                      bool deterministic = true) {
  *count = 0;
  if (status != CUDNN_STATUS_SUCCESS) return status;
  using Algorithm = decltype(found->algo);
  const bool narrow = type != CUDNN_DATA_FLOAT;
  // Narrow types get tensor cores only if these are asked for by name.
  if (narrow != (conv.math == CUDNN_TENSOR_OP_MATH)) return CUDNN_STATUS_BAD_PARAM;
  const auto add = [&](int algorithm, cudnnDeterminism_t determinism, cudnnMathType_t math) {
    if (*count < most) {
      found[(*count)++] = {static_cast<Algorithm>(algorithm), status, determinism, math};
    }
  };
  for (int i = 0; i < kCandidates - 2; ++i) {
    add(kVarying, CUDNN_NON_DETERMINISTIC, narrow ? CUDNN_TENSOR_OP_MATH : CUDNN_FMA_MATH);
  }
  if (!deterministic) return status;
  add(kTensorCores, CUDNN_DETERMINISTIC, CUDNN_TENSOR_OP_MATH);
  add(kGood, CUDNN_DETERMINISTIC, CUDNN_FMA_MATH);
  return status;
}

cudnnStatus_t count_candidates(int* count) {
  *count = kCandidates;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t workspace(cudnnStatus_t status, size_t* bytes) {
  *bytes = kWorkspace;
  return status;
}

// Refuses algorithms that should not have been chosen. Overwrites the workspace before any operand
// is read, because operands must not lie in it.
cudnnStatus_t begin(cudnnHandle_t handle, const cudnnConvolutionStruct& conv, cudnnDataType_t type,
                    int algorithm, void* memory, size_t bytes) {
  const bool narrow = type != CUDNN_DATA_FLOAT;
  const int wanted = narrow ? kTensorCores : kGood;
  const cudnnMathType_t math = narrow ? CUDNN_TENSOR_OP_MATH : CUDNN_FMA_MATH;
  if (!handle || algorithm != wanted || conv.math != math || bytes != kWorkspace) {
    return CUDNN_STATUS_BAD_PARAM;
  }
  std::memset(memory, 0xFF, bytes);
  return CUDNN_STATUS_SUCCESS;
}

void store(const std::vector<double>& sums, cudnnDataType_t type, void* data) {
  for (size_t i = 0; i < sums.size(); ++i) {
    const auto sum = static_cast<float>(sums[i]);
    if (type == CUDNN_DATA_BFLOAT16) {
      static_cast<lockstep::BFloat16*>(data)[i] = lockstep::to_bfloat16(sum);
    } else if (type == CUDNN_DATA_HALF) {
      static_cast<lockstep::Float16*>(data)[i] = lockstep::to_float16(sum);
    } else {
      static_cast<float*>(data)[i] = sum;
    }
  }
}

double at(const cudnnTensorStruct& t, const void* data, size_t i) {
  const float value = t.type == CUDNN_DATA_BFLOAT16
                          ? lockstep::to_float(static_cast<const lockstep::BFloat16*>(data)[i])
                      : t.type == CUDNN_DATA_HALF
                          ? lockstep::to_float(static_cast<const lockstep::Float16*>(data)[i])
                          : static_cast<const float*>(data)[i];
  return static_cast<double>(value);
}

cudnnStatus_t describe(cudnnTensorStruct& t, cudnnDataType_t type, int count, const int dims[]) {
  if (count != 4 && count != 5) return CUDNN_STATUS_NOT_SUPPORTED;
  t = {count - 2, dims[0], dims[1], {1, 1, 1}, {}, type};
  std::copy_n(dims + 2, t.axes, t.space + 3 - t.axes);
  return CUDNN_STATUS_SUCCESS;
}

template <class T>
cudnnStatus_t create(T** d) {
  *d = new T{};
  return CUDNN_STATUS_SUCCESS;
}
template <class T>
cudnnStatus_t destroy(T* d) {
  delete d;
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

size_t cudnnGetVersion() { return 91900; }
const char* cudnnGetErrorString(cudnnStatus_t) { return "refused by the stand-in"; }
void cudnnGetLastErrorString(char* message, size_t) { message[0] = 0; }
cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  static cudnnContext instance;
  *handle = &instance;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t, void*) { return CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* d) { return create(d); }
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t d) { return destroy(d); }
cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t d, cudnnDataType_t type, int count,
                                         const int dims[], const int strides[]) {
  const cudnnStatus_t status = describe(*d, type, count, dims);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  std::copy_n(strides, 2, d->strides);
  std::copy_n(strides + 2, d->axes, d->strides + 5 - d->axes);
  return status;
}
cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* d) { return create(d); }
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t d) { return destroy(d); }
cudnnStatus_t cudnnSetFilterNdDescriptor(cudnnFilterDescriptor_t d, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int count, const int dims[]) {
  const cudnnStatus_t status = describe(*d, type, count, dims);
  d->format = format;
  pack(*d, format);
  return status;
}
cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* d) {
  return create(d);
}
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t d) {
  return destroy(d);
}
cudnnStatus_t cudnnSetConvolutionNdDescriptor(cudnnConvolutionDescriptor_t d, int axes,
                                              const int pad[], const int stride[],
                                              const int dilation[], cudnnConvolutionMode_t,
                                              cudnnDataType_t) {
  if (axes != 2 && axes != 3) return CUDNN_STATUS_NOT_SUPPORTED;
  *d = {axes, {0, 0, 0}, {1, 1, 1}, {1, 1, 1}, 1, CUDNN_DEFAULT_MATH};
  std::copy_n(pad, axes, d->pad + 3 - axes);
  std::copy_n(stride, axes, d->stride + 3 - axes);
  std::copy_n(dilation, axes, d->dilation + 3 - axes);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t d, int groups) {
  d->groups = groups;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t d, cudnnMathType_t math) {
  d->math = math;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionForwardAlgorithmMaxCount(cudnnHandle_t, int* count) {
  return count_candidates(count);
}
cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithmMaxCount(cudnnHandle_t, int* count) {
  return count_candidates(count);
}
cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithmMaxCount(cudnnHandle_t, int* count) {
  return count_candidates(count);
}
cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t, cudnnTensorDescriptor_t x,
                                                     cudnnFilterDescriptor_t w,
                                                     cudnnConvolutionDescriptor_t conv,
                                                     cudnnTensorDescriptor_t y, int most,
                                                     int* count,
                                                     cudnnConvolutionFwdAlgoPerf_t* found) {
  return propose(x->type, *conv, supported(*x, *w, *conv, *y), most, count, found);
}
cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(
    cudnnHandle_t, cudnnFilterDescriptor_t w, cudnnTensorDescriptor_t dy,
    cudnnConvolutionDescriptor_t conv, cudnnTensorDescriptor_t dx, int most, int* count,
    cudnnConvolutionBwdDataAlgoPerf_t* found) {
  return propose(dx->type, *conv, supported(*dx, *w, *conv, *dy), most, count, found,
                 !dilated_volumes(*conv));
}
cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(
    cudnnHandle_t, cudnnTensorDescriptor_t x, cudnnTensorDescriptor_t dy,
    cudnnConvolutionDescriptor_t conv, cudnnFilterDescriptor_t dw, int most, int* count,
    cudnnConvolutionBwdFilterAlgoPerf_t* found) {
  return propose(x->type, *conv, supported(*x, *dw, *conv, *dy), most, count, found);
}
cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t, cudnnTensorDescriptor_t x,
                                                      cudnnFilterDescriptor_t w,
                                                      cudnnConvolutionDescriptor_t conv,
                                                      cudnnTensorDescriptor_t y,
                                                      cudnnConvolutionFwdAlgo_t, size_t* bytes) {
  return workspace(supported(*x, *w, *conv, *y), bytes);
}
cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(cudnnHandle_t, cudnnFilterDescriptor_t w,
                                                           cudnnTensorDescriptor_t dy,
                                                           cudnnConvolutionDescriptor_t conv,
                                                           cudnnTensorDescriptor_t dx,
                                                           cudnnConvolutionBwdDataAlgo_t,
                                                           size_t* bytes) {
  if (dilated_volumes(*conv)) return CUDNN_STATUS_NOT_SUPPORTED;
  return workspace(supported(*dx, *w, *conv, *dy), bytes);
}
cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(
    cudnnHandle_t, cudnnTensorDescriptor_t x, cudnnTensorDescriptor_t dy,
    cudnnConvolutionDescriptor_t conv, cudnnFilterDescriptor_t dw, cudnnConvolutionBwdFilterAlgo_t,
    size_t* bytes) {
  return workspace(supported(*x, *dw, *conv, *dy), bytes);
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void*, cudnnTensorDescriptor_t x,
                                      const void* x_data, cudnnFilterDescriptor_t w,
                                      const void* w_data, cudnnConvolutionDescriptor_t conv,
                                      cudnnConvolutionFwdAlgo_t algo, void* memory, size_t bytes,
                                      const void*, cudnnTensorDescriptor_t y, void* y_data) {
  const cudnnStatus_t status = begin(handle, *conv, x->type, algo, memory, bytes);
  std::vector<double> sums(elements(*y));
  for_products(*x, *w, *conv, *y, [&](size_t i, size_t j, size_t k) {
    sums[k] += at(*x, x_data, i) * at(*w, w_data, j);
  });
  if (status == CUDNN_STATUS_SUCCESS) store(sums, y->type, y_data);
  return status;
}
cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void*,
                                           cudnnFilterDescriptor_t w, const void* w_data,
                                           cudnnTensorDescriptor_t dy, const void* dy_data,
                                           cudnnConvolutionDescriptor_t conv,
                                           cudnnConvolutionBwdDataAlgo_t algo, void* memory,
                                           size_t bytes, const void*, cudnnTensorDescriptor_t dx,
                                           void* dx_data) {
  const cudnnStatus_t status = begin(handle, *conv, dx->type, algo, memory, bytes);
  std::vector<double> sums(elements(*dx));
  for_products(*dx, *w, *conv, *dy, [&](size_t i, size_t j, size_t k) {
    sums[i] += at(*w, w_data, j) * at(*dy, dy_data, k);
  });
  if (status == CUDNN_STATUS_SUCCESS) store(sums, dx->type, dx_data);
  return status;
}
cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void*,
                                             cudnnTensorDescriptor_t x, const void* x_data,
                                             cudnnTensorDescriptor_t dy, const void* dy_data,
                                             cudnnConvolutionDescriptor_t conv,
                                             cudnnConvolutionBwdFilterAlgo_t algo, void* memory,
                                             size_t bytes, const void*, cudnnFilterDescriptor_t dw,
                                             void* dw_data) {
  const cudnnStatus_t status = begin(handle, *conv, x->type, algo, memory, bytes);
  std::vector<double> sums(elements(*dw));
  for_products(*x, *dw, *conv, *dy, [&](size_t i, size_t j, size_t k) {
    sums[j] += at(*x, x_data, i) * at(*dy, dy_data, k);
  });
  if (status == CUDNN_STATUS_SUCCESS) store(sums, dw->type, dw_data);
  return status;
}
