#include "tests/engine/cuda/stand_in/cudnn.h"

#include <cstring>
#include <vector>

namespace {

constexpr size_t kWorkspace = 300;
// What the heuristics propose: only the last may be taken by default.
constexpr int kVarying = 4, kTensorCores = 3, kGood = 2;

size_t place(const cudnnTensorStruct& t, int n, int c, int y, int x) {
  const bool last = t.format == CUDNN_TENSOR_NHWC;
  return static_cast<size_t>(last ? ((n * t.h + y) * t.w + x) * t.c + c
                                  : ((n * t.c + c) * t.h + y) * t.w + x);
}

size_t elements(const cudnnTensorStruct& t) { return static_cast<size_t>(t.n * t.c * t.h * t.w); }

// Calls body(x index, w index, y index) for all products of the convolution.
template <class Body>
void for_products(const cudnnTensorStruct& x, const cudnnTensorStruct& w,
                  const cudnnConvolutionStruct& conv, const cudnnTensorStruct& y, Body body) {
  for (int n = 0; n < y.n; ++n) {
    for (int k = 0; k < y.c; ++k) {
      const int group = k / (w.n / conv.groups);
      for (int i = 0; i < y.h * y.w; ++i) {
        for (int c = 0; c < w.c; ++c) {
          for (int j = 0; j < w.h * w.w; ++j) {
            const int p = j / w.w, q = j % w.w;
            const int row = i / y.w * conv.stride[0] - conv.pad[0] + p * conv.dilation[0];
            const int column = i % y.w * conv.stride[1] - conv.pad[1] + q * conv.dilation[1];
            if (row < 0 || row >= x.h || column < 0 || column >= x.w) continue;
            body(place(x, n, group * w.c + c, row, column), place(w, k, c, p, q),
                 place(y, n, k, i / y.w, i % y.w));
          }
        }
      }
    }
  }
}

int positions(int size, int kernel, const cudnnConvolutionStruct& conv, int axis) {
  const int extent = conv.dilation[axis] * (kernel - 1) + 1;
  return (size + 2 * conv.pad[axis] - extent) / conv.stride[axis] + 1;
}

cudnnStatus_t supported(const cudnnTensorStruct& x, const cudnnTensorStruct& w,
                        const cudnnConvolutionStruct& conv, const cudnnTensorStruct& y) {
  const bool shapes = x.n == y.n && x.c == w.c * conv.groups && y.c == w.n &&
                      y.h == positions(x.h, w.h, conv, 0) && y.w == positions(x.w, w.w, conv, 1) &&
                      x.format == w.format && x.format == y.format;
  if (!shapes) return CUDNN_STATUS_BAD_PARAM;
  const bool grouped_last = conv.groups > 1 && x.format == CUDNN_TENSOR_NHWC;
  return grouped_last ? CUDNN_STATUS_NOT_SUPPORTED : CUDNN_STATUS_SUCCESS;
}

template <class Perf>
cudnnStatus_t propose(cudnnStatus_t status, int most, int* count, Perf* found) {
  *count = 0;
  if (status != CUDNN_STATUS_SUCCESS || most < 3) return status;
  using Algorithm = decltype(found->algo);
  found[0] = {static_cast<Algorithm>(kVarying), status, CUDNN_NON_DETERMINISTIC, CUDNN_FMA_MATH};
  found[1] = {static_cast<Algorithm>(kTensorCores), status, CUDNN_DETERMINISTIC,
              CUDNN_TENSOR_OP_MATH};
  found[2] = {static_cast<Algorithm>(kGood), status, CUDNN_DETERMINISTIC, CUDNN_FMA_MATH};
  *count = 3;
  return status;
}

cudnnStatus_t workspace(cudnnStatus_t status, size_t* bytes) {
  *bytes = kWorkspace;
  return status;
}

// Refuses what should not have been chosen, and spoils the workspace before anything is read:
// operands must lie outside.
cudnnStatus_t begin(cudnnHandle_t handle, const cudnnConvolutionStruct& conv, int algorithm,
                    void* memory, size_t bytes) {
  if (!handle || algorithm != kGood || conv.math != CUDNN_FMA_MATH || bytes != kWorkspace) {
    return CUDNN_STATUS_BAD_PARAM;
  }
  std::memset(memory, 0xFF, bytes);
  return CUDNN_STATUS_SUCCESS;
}

void store(const std::vector<double>& sums, void* data) {
  for (size_t i = 0; i < sums.size(); ++i)
    static_cast<float*>(data)[i] = static_cast<float>(sums[i]);
}

double at(const void* data, size_t i) {
  return static_cast<double>(static_cast<const float*>(data)[i]);
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
cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t d, cudnnTensorFormat_t format,
                                         cudnnDataType_t, int n, int c, int h, int w) {
  *d = {format, n, c, h, w};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* d) { return create(d); }
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t d) { return destroy(d); }
cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t d, cudnnDataType_t,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w) {
  *d = {{format, k, c, h, w}};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* d) {
  return create(d);
}
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t d) {
  return destroy(d);
}
cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t d, int pad_h, int pad_w,
                                              int stride_h, int stride_w, int dilation_h,
                                              int dilation_w, cudnnConvolutionMode_t,
                                              cudnnDataType_t) {
  *d = {{pad_h, pad_w}, {stride_h, stride_w}, {dilation_h, dilation_w}, 1, CUDNN_DEFAULT_MATH};
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

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t, cudnnTensorDescriptor_t x,
                                                     cudnnFilterDescriptor_t w,
                                                     cudnnConvolutionDescriptor_t conv,
                                                     cudnnTensorDescriptor_t y, int most,
                                                     int* count,
                                                     cudnnConvolutionFwdAlgoPerf_t* found) {
  return propose(supported(*x, *w, *conv, *y), most, count, found);
}
cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(
    cudnnHandle_t, cudnnFilterDescriptor_t w, cudnnTensorDescriptor_t dy,
    cudnnConvolutionDescriptor_t conv, cudnnTensorDescriptor_t dx, int most, int* count,
    cudnnConvolutionBwdDataAlgoPerf_t* found) {
  return propose(supported(*dx, *w, *conv, *dy), most, count, found);
}
cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(
    cudnnHandle_t, cudnnTensorDescriptor_t x, cudnnTensorDescriptor_t dy,
    cudnnConvolutionDescriptor_t conv, cudnnFilterDescriptor_t dw, int most, int* count,
    cudnnConvolutionBwdFilterAlgoPerf_t* found) {
  return propose(supported(*x, *dw, *conv, *dy), most, count, found);
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
  const cudnnStatus_t status = begin(handle, *conv, algo, memory, bytes);
  std::vector<double> sums(elements(*y));
  for_products(*x, *w, *conv, *y,
               [&](size_t i, size_t j, size_t k) { sums[k] += at(x_data, i) * at(w_data, j); });
  if (status == CUDNN_STATUS_SUCCESS) store(sums, y_data);
  return status;
}
cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void*,
                                           cudnnFilterDescriptor_t w, const void* w_data,
                                           cudnnTensorDescriptor_t dy, const void* dy_data,
                                           cudnnConvolutionDescriptor_t conv,
                                           cudnnConvolutionBwdDataAlgo_t algo, void* memory,
                                           size_t bytes, const void*, cudnnTensorDescriptor_t dx,
                                           void* dx_data) {
  const cudnnStatus_t status = begin(handle, *conv, algo, memory, bytes);
  std::vector<double> sums(elements(*dx));
  for_products(*dx, *w, *conv, *dy,
               [&](size_t i, size_t j, size_t k) { sums[i] += at(w_data, j) * at(dy_data, k); });
  if (status == CUDNN_STATUS_SUCCESS) store(sums, dx_data);
  return status;
}
cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void*,
                                             cudnnTensorDescriptor_t x, const void* x_data,
                                             cudnnTensorDescriptor_t dy, const void* dy_data,
                                             cudnnConvolutionDescriptor_t conv,
                                             cudnnConvolutionBwdFilterAlgo_t algo, void* memory,
                                             size_t bytes, const void*, cudnnFilterDescriptor_t dw,
                                             void* dw_data) {
  const cudnnStatus_t status = begin(handle, *conv, algo, memory, bytes);
  std::vector<double> sums(elements(*dw));
  for_products(*x, *dw, *conv, *dy,
               [&](size_t i, size_t j, size_t k) { sums[j] += at(x_data, i) * at(dy_data, k); });
  if (status == CUDNN_STATUS_SUCCESS) store(sums, dw_data);
  return status;
}
