#include <algorithm>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/engine/device/device_log.h"
#include "lockstep/engine/kernels/cuda/cuda.h"
#include "lockstep/engine/kernels/cuda/elements.h"
#include "lockstep/engine/kernels/cuda/shapes/layout.h"
#include "lockstep/engine/kernels/cuda/windows/cudnn_convolution.h"

namespace lockstep::kernels::cuda {
namespace {

int as_int(int64_t n) {
  if (n > std::numeric_limits<int>::max()) {
    throw Unsupported(
        "[cuda] cuDNN supports sizes of 32 bits, but this convolution has a dimension or stride "
        "of " +
        std::to_string(n));
  }
  return static_cast<int>(n);
}

template <class Numbers>
std::vector<int> as_ints(const Numbers& numbers) {
  std::vector<int> ints;
  for (int64_t n : numbers) ints.push_back(as_int(n));
  return ints;
}

// Strides of n, c and the spatial axes in memory without gaps.
std::vector<int> packed_strides(const std::vector<int>& dims, cudnnTensorFormat_t format) {
  std::vector<int64_t> strides(dims.size());
  int64_t step = 1;
  const auto put = [&](size_t i) {
    strides[i] = step;
    step *= dims[i];
  };
  if (format == CUDNN_TENSOR_NHWC) put(1);
  for (size_t i = dims.size() - 1; i > 1; --i) put(i);
  if (format == CUDNN_TENSOR_NCHW) put(1);
  put(0);
  return as_ints(strides);
}

StridedTensor strided(const Shape& shape, cudnnTensorFormat_t format) {
  const std::vector<int> sizes = as_ints(shape.dims()), steps = packed_strides(sizes, format);
  StridedTensor t;
  t.count = sizes[0];
  t.count_step = steps[0];
  t.channels = sizes[1];
  t.channel_step = steps[1];
  const size_t axes = sizes.size() - 2;
  for (size_t a = 0; a < axes; ++a) {
    t.space[kMostAxes - axes + a] = sizes[2 + a];
    t.space_step[kMostAxes - axes + a] = steps[2 + a];
  }
  return t;
}

// Owns a cuDNN descriptor.
template <class T, cudnnStatus_t (*create)(T*), cudnnStatus_t (*destroy)(T)>
class Descriptor {
 public:
  Descriptor() { check(create(&value_), "making a descriptor"); }
  ~Descriptor() { destroy(value_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  T get() const { return value_; }

 private:
  T value_ = nullptr;
};
using TensorDescriptor =
    Descriptor<cudnnTensorDescriptor_t, cudnnCreateTensorDescriptor, cudnnDestroyTensorDescriptor>;
using FilterDescriptor =
    Descriptor<cudnnFilterDescriptor_t, cudnnCreateFilterDescriptor, cudnnDestroyFilterDescriptor>;
using WindowDescriptor = Descriptor<cudnnConvolutionDescriptor_t, cudnnCreateConvolutionDescriptor,
                                    cudnnDestroyConvolutionDescriptor>;

// One pass: its window, with the arithmetic of the chosen algorithm.
template <class Algorithm>
struct PassChoice {
  WindowDescriptor window;
  Algorithm algorithm{};
  cudnnMathType_t arithmetic = CUDNN_DEFAULT_MATH;
  bool proposed = false;  // by the heuristics
  size_t workspace = 0;
};

// As an object of JSON, with cuDNN's numbers.
template <class Algorithm>
std::string text_of(const PassChoice<Algorithm>& pass) {
  return R"({"algorithm":)" + std::to_string(static_cast<int>(pass.algorithm)) +
         R"(,"arithmetic":)" + std::to_string(static_cast<int>(pass.arithmetic)) +
         R"(,"workspace":)" + std::to_string(pass.workspace) + R"(,"proposed":)" +
         (pass.proposed ? "true}" : "false}");
}

// Tensor cores sum products of bf16 and f16 in f32, so they add no rounding for these types.
bool tensor_cores_allowed(DType dtype) { return is_narrow(dtype) || choice().tf32; }

cudnnDataType_t cudnn_type(DType dtype) {
  return dtype == DType::bf16  ? CUDNN_DATA_BFLOAT16
         : dtype == DType::f16 ? CUDNN_DATA_HALF
                               : CUDNN_DATA_FLOAT;
}

// The arithmetic to ask for. Some releases of cuDNN propose no algorithm with tensor cores, or run
// none, for narrow types unless they are named.
cudnnMathType_t wanted_arithmetic(DType dtype) {
  return is_narrow(dtype)              ? CUDNN_TENSOR_OP_MATH
         : tensor_cores_allowed(dtype) ? CUDNN_DEFAULT_MATH
                                       : CUDNN_FMA_MATH;
}

bool arithmetic_allowed(cudnnMathType_t math, DType dtype) {
  return tensor_cores_allowed(dtype) || math == CUDNN_FMA_MATH || math == CUDNN_DEFAULT_MATH;
}

// Takes the first usable candidate. `workspace_of` queries an algorithm's workspace; it fails if
// the algorithm does not support the problem. `fallbacks` are documented to be deterministic. They
// serve problems for which the heuristics give no result.
template <class Algorithm, class Candidate, class WorkspaceOf>
void choose(const char* what, DType dtype, std::span<const Candidate> candidates,
            std::initializer_list<Algorithm> fallbacks, const WorkspaceOf& workspace_of,
            PassChoice<Algorithm>& choice) {
  // Without TF32 the descriptor forbids it, regardless of the candidate's math type.
  const auto fits = [&](Algorithm algorithm, cudnnMathType_t math) {
    const cudnnMathType_t used = tensor_cores_allowed(dtype) ? math : CUDNN_FMA_MATH;
    check(cudnnSetConvolutionMathType(choice.window.get(), used), "setting the arithmetic");
    size_t bytes = 0;
    if (workspace_of(algorithm, &bytes) != CUDNN_STATUS_SUCCESS) return false;
    if (bytes > kMostLibraryScratch) return false;
    choice.algorithm = algorithm;
    choice.arithmetic = used;
    choice.workspace = bytes;
    return true;
  };
  for (const Candidate& c : candidates) {
    const bool allowed = !cuda::choice().deterministic || c.determinism == CUDNN_DETERMINISTIC;
    if (c.status == CUDNN_STATUS_SUCCESS && allowed && arithmetic_allowed(c.mathType, dtype) &&
        fits(c.algo, c.mathType)) {
      choice.proposed = true;
      return;
    }
  }
  for (const Algorithm a : fallbacks) {
    if (fits(a, wanted_arithmetic(dtype))) return;
  }
  throw Unsupported(std::string("[cuda] cuDNN has no ") + what + " for this convolution" +
                    (cuda::choice().deterministic ? " that is deterministic" : "") +
                    cudnn_details());
}

// Room for all candidates: there may be several of one algorithm, with different arithmetic.
template <cudnnStatus_t (*ask)(cudnnHandle_t, int*)>
size_t most_candidates(cudnnHandle_t handle) {
  int most = 0;
  check(ask(handle, &most), "counting the algorithms");
  return static_cast<size_t>(std::max(most, 1));
}

constexpr float kOne = 1, kZero = 0;

// Describes one axis as an image of one row. Two and three axes stay unchanged.
ConvolutionGeometry as_images(const ConvolutionGeometry& given) {
  if (given.window.axes() > 1) return given;
  const auto shape = [](const Shape& s) { return Shape{s[0], s[1], 1, s[2]}; };
  const Window& w = given.window;
  return {shape(given.x),
          shape(given.w),
          shape(given.y),
          {{1, w.kernel[0]},
           {1, w.stride[0]},
           {1, w.dilation[0]},
           {0, w.pad_begin[0]},
           {0, w.pad_end[0]}},
          given.groups,
          given.dtype};
}

struct Same {
  __device__ float operator()(float x) const { return x; }
};

std::byte* after(void* scratch, size_t bytes) { return static_cast<std::byte*>(scratch) + bytes; }

}  // namespace

struct CudnnConvolution::Descriptors {
  TensorDescriptor x, y;
  FilterDescriptor w;
  PassChoice<cudnnConvolutionFwdAlgo_t> forward;
  PassChoice<cudnnConvolutionBwdDataAlgo_t> data;
  PassChoice<cudnnConvolutionBwdFilterAlgo_t> weights;

  void choose_forward(cudnnHandle_t handle, DType dtype) {
    std::vector<cudnnConvolutionFwdAlgoPerf_t> found(
        most_candidates<cudnnGetConvolutionForwardAlgorithmMaxCount>(handle));
    const int most = static_cast<int>(found.size());
    int count = 0;
    if (cudnnGetConvolutionForwardAlgorithm_v7(handle, x.get(), w.get(), forward.window.get(),
                                               y.get(), most, &count,
                                               found.data()) != CUDNN_STATUS_SUCCESS) {
      count = 0;
    }
    choose(
        "forward pass", dtype,
        std::span<const cudnnConvolutionFwdAlgoPerf_t>(found.data(), size_t(count)),
        {CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM,
         CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM},
        [&](cudnnConvolutionFwdAlgo_t a, size_t* bytes) {
          return cudnnGetConvolutionForwardWorkspaceSize(handle, x.get(), w.get(),
                                                         forward.window.get(), y.get(), a, bytes);
        },
        forward);
  }

  void choose_data(cudnnHandle_t handle, DType dtype) {
    std::vector<cudnnConvolutionBwdDataAlgoPerf_t> found(
        most_candidates<cudnnGetConvolutionBackwardDataAlgorithmMaxCount>(handle));
    const int most = static_cast<int>(found.size());
    int count = 0;
    if (cudnnGetConvolutionBackwardDataAlgorithm_v7(handle, w.get(), y.get(), data.window.get(),
                                                    x.get(), most, &count,
                                                    found.data()) != CUDNN_STATUS_SUCCESS) {
      count = 0;
    }
    choose(
        "backward pass for data", dtype,
        std::span<const cudnnConvolutionBwdDataAlgoPerf_t>(found.data(), size_t(count)),
        {CUDNN_CONVOLUTION_BWD_DATA_ALGO_1},
        [&](cudnnConvolutionBwdDataAlgo_t a, size_t* bytes) {
          return cudnnGetConvolutionBackwardDataWorkspaceSize(handle, w.get(), y.get(),
                                                              data.window.get(), x.get(), a, bytes);
        },
        data);
  }

  void choose_weights(cudnnHandle_t handle, DType dtype) {
    std::vector<cudnnConvolutionBwdFilterAlgoPerf_t> found(
        most_candidates<cudnnGetConvolutionBackwardFilterAlgorithmMaxCount>(handle));
    const int most = static_cast<int>(found.size());
    int count = 0;
    if (cudnnGetConvolutionBackwardFilterAlgorithm_v7(handle, x.get(), y.get(),
                                                      weights.window.get(), w.get(), most, &count,
                                                      found.data()) != CUDNN_STATUS_SUCCESS) {
      count = 0;
    }
    choose(
        "backward pass for weights", dtype,
        std::span<const cudnnConvolutionBwdFilterAlgoPerf_t>(found.data(), size_t(count)),
        {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1},
        [&](cudnnConvolutionBwdFilterAlgo_t a, size_t* bytes) {
          return cudnnGetConvolutionBackwardFilterWorkspaceSize(
              handle, x.get(), y.get(), weights.window.get(), w.get(), a, bytes);
        },
        weights);
  }
};

std::shared_ptr<const CudnnConvolution> CudnnConvolution::make(const ConvolutionGeometry& g) {
  ConvolutionGeometry wide = g;
  wide.dtype = DType::f32;
  std::string reason;
  for (const DataBy data_by : {DataBy::cudnn, DataBy::own}) {
    for (const ConvolutionGeometry* const geometry : {&g, &std::as_const(wide)}) {
      if (geometry != &g && g.dtype == DType::f32) continue;
      for (const cudnnTensorFormat_t format : {CUDNN_TENSOR_NHWC, CUDNN_TENSOR_NCHW}) {
        try {
          return std::shared_ptr<const CudnnConvolution>(
              new CudnnConvolution(*geometry, format, data_by));
        } catch (const Unsupported& error) {
          reason = error.what();
        }
      }
    }
  }
  throw Unsupported(reason);
}

CudnnConvolution::~CudnnConvolution() = default;

CudnnConvolution::CudnnConvolution(const ConvolutionGeometry& given, cudnnTensorFormat_t format,
                                   DataBy data_by)
    : format_(format), descriptors_(std::make_unique<Descriptors>()), data_by_(data_by) {
  const auto spec = [&](const Shape& shape) {
    return format == CUDNN_TENSOR_NHWC ? channels_last(shape, given.dtype)
                                       : TensorSpec{shape, given.dtype, nullptr};
  };
  x_ = spec(given.x);
  w_ = spec(given.w);
  y_ = spec(given.y);
  const ConvolutionGeometry g = as_images(given);

  // Arrays by axis of a volume. Axes that the window does not have come first, with size 1 and no
  // padding.
  const Window& w = g.window;
  const auto axes = static_cast<size_t>(w.axes()), missing = kMostAxes - axes;
  int64_t sizes[kMostAxes] = {1, 1, 1}, before[kMostAxes] = {}, after[kMostAxes] = {};
  std::vector<int64_t> common(axes);
  for (size_t a = 0; a < axes; ++a) {
    common[a] = std::min(w.pad_begin[a], w.pad_end[a]);
    before[missing + a] = w.pad_begin[a] - common[a];
    after[missing + a] = w.pad_end[a] - common[a];
    sizes[missing + a] = g.x[2 + static_cast<int>(a)];
  }
  frame_ = {before[0], before[1], before[2], after[0], after[1], after[2]};
  const bool last = format == CUDNN_TENSOR_NHWC;
  volumes_ = {last ? g.x[0] : g.x[0] * g.x[1], sizes[0], sizes[1], sizes[2], last ? g.x[1] : 1};
  const Volumes framed = frame_.around(volumes_);

  Descriptors& d = *descriptors_;
  const DType dtype = g.dtype;
  const cudnnDataType_t type = cudnn_type(dtype);
  // Explicit strides can describe channels last for any number of axes.
  const auto describe = [&](const TensorDescriptor& t, const std::vector<int>& dims) {
    check(cudnnSetTensorNdDescriptor(t.get(), type, static_cast<int>(dims.size()), dims.data(),
                                     packed_strides(dims, format).data()),
          "describing a tensor");
  };
  std::vector<int64_t> x_dims = g.x.dims();
  for (size_t a = 0; a < axes; ++a) x_dims[2 + a] += before[missing + a] + after[missing + a];
  describe(d.x, as_ints(x_dims));
  describe(d.y, as_ints(g.y.dims()));
  const std::vector<int> w_dims = as_ints(g.w.dims());
  check(cudnnSetFilterNdDescriptor(d.w.get(), type, format, static_cast<int>(w_dims.size()),
                                   w_dims.data()),
        "describing weights");
  const std::vector<int> pads = as_ints(common), strides = as_ints(w.stride),
                         dilations = as_ints(w.dilation);
  const cudnnMathType_t math = wanted_arithmetic(dtype);
  for (const auto window : {d.forward.window.get(), d.data.window.get(), d.weights.window.get()}) {
    check(cudnnSetConvolutionNdDescriptor(window, static_cast<int>(axes), pads.data(),
                                          strides.data(), dilations.data(), CUDNN_CROSS_CORRELATION,
                                          CUDNN_DATA_FLOAT),
          "describing a window");
    check(cudnnSetConvolutionGroupCount(window, as_int(g.groups)), "setting groups");
    check(cudnnSetConvolutionMathType(window, math), "setting the arithmetic");
  }

  const cudnnHandle_t handle = cudnn_handle(nullptr);
  d.choose_forward(handle, dtype);
  if (data_by_ == DataBy::cudnn) {
    d.choose_data(handle, dtype);
  } else {
    strided_x_ = strided(g.x, format);
    strided_w_ = strided(g.w, format);
    strided_y_ = strided(g.y, format);
    groups_ = g.groups;
    for (size_t a = 0; a < axes; ++a) {
      window_.kernel[missing + a] = w.kernel[a];
      window_.stride[missing + a] = w.stride[a];
      window_.dilation[missing + a] = w.dilation[a];
      window_.pad[missing + a] = w.pad_begin[a];
    }
  }
  d.choose_weights(handle, dtype);
  workspace_ = {aligned_scratch(d.forward.workspace), aligned_scratch(d.data.workspace),
                aligned_scratch(d.weights.workspace)};
  scratch_ = workspace_;
  if (frame_.any()) {
    framed_bytes_ = aligned_scratch(static_cast<size_t>(framed.elements()) * size_of(dtype));
    scratch_.forward += framed_bytes_;
    if (data_by_ == DataBy::cudnn) scratch_.data += framed_bytes_;
    scratch_.weights += framed_bytes_;
  }
  if (dtype != DType::f32) narrow_bytes_ = aligned_scratch(w_.bytes());
  scratch_.weights += narrow_bytes_;
  if (has_device_log()) {
    add_to_device_log(R"({"convolution":{"x":")" + given.x.to_string() + R"(","w":")" +
                      given.w.to_string() + R"(","y":")" + given.y.to_string() + R"(","stride":")" +
                      given.window.stride.to_string() + R"(","dilation":")" +
                      given.window.dilation.to_string() + R"(","groups":)" +
                      std::to_string(given.groups) + R"(,"type":")" + std::string(name_of(dtype)) +
                      R"(","channels_last":)" + (last ? "true" : "false") + R"(},"forward":)" +
                      text_of(d.forward) + R"(,"data":)" +
                      (data_by_ == DataBy::own ? std::string(R"("own kernel")") : text_of(d.data)) +
                      R"(,"weights":)" + text_of(d.weights) + "}");
  }
}

TensorSpec CudnnConvolution::diff_w() const {
  return w_.row_major() ? TensorSpec{w_.shape, DType::f32, nullptr} : channels_last(w_.shape);
}

ChannelLayout CudnnConvolution::channel_layout(const TensorSpec& activations) const {
  const Extents e = extents_of(activations.shape);
  return {e.outer * e.space, e.channels, format_ == CUDNN_TENSOR_NHWC ? 1 : e.space};
}

// The x that cuDNN reads: if there is a frame, a padded copy after the workspace, else `x` itself.
const void* CudnnConvolution::padded(const void* x, size_t workspace, void* scratch,
                                     void* stream) const {
  if (!frame_.any()) return x;
  void* const framed = after(scratch, workspace);
  launch_pad(volumes_, frame_, size_of(dtype()), x, framed, stream);
  return framed;
}

void CudnnConvolution::forward(const void* x, const void* w, void* y, void* scratch,
                               void* stream) const {
  const Descriptors& d = *descriptors_;
  const void* seen = padded(x, workspace_.forward, scratch, stream);
  check(cudnnConvolutionForward(cudnn_handle(stream), &kOne, d.x.get(), seen, d.w.get(), w,
                                d.forward.window.get(), d.forward.algorithm, scratch,
                                d.forward.workspace, &kZero, d.y.get(), y),
        "convolution");
}

void CudnnConvolution::data(const void* w, const void* dy, void* dx, void* scratch,
                            void* stream) const {
  if (data_by_ == DataBy::own) {
    launch_data_gradient(strided_w_, strided_y_, strided_x_, window_, groups_, dtype(), w, dy, dx,
                         stream);
    return;
  }
  const Descriptors& d = *descriptors_;
  void* const seen = frame_.any() ? after(scratch, workspace_.data) : dx;
  check(cudnnConvolutionBackwardData(cudnn_handle(stream), &kOne, d.w.get(), w, d.y.get(), dy,
                                     d.data.window.get(), d.data.algorithm, scratch,
                                     d.data.workspace, &kZero, d.x.get(), seen),
        "convolution, backward for data");
  if (frame_.any()) launch_crop(volumes_, frame_, size_of(dtype()), seen, dx, stream);
}

void CudnnConvolution::weights(const void* x, const void* dy, float* dw, void* scratch,
                               void* stream) const {
  const Descriptors& d = *descriptors_;
  // cuDNN requires one type for all three tensors. A narrow gradient is converted to f32
  // afterwards.
  void* const narrow = after(scratch, workspace_.weights + framed_bytes_);
  void* const to = narrow_bytes_ > 0 ? narrow : dw;
  const void* seen = padded(x, workspace_.weights, scratch, stream);
  check(cudnnConvolutionBackwardFilter(cudnn_handle(stream), &kOne, d.x.get(), seen, d.y.get(), dy,
                                       d.weights.window.get(), d.weights.algorithm, scratch,
                                       d.weights.workspace, &kZero, d.w.get(), to),
        "convolution, backward for weights");
  if (narrow_bytes_ > 0) {
    for_elements(dtype(), [&]<class T>(T) {
      launch_map("gradient of weights", w_.shape.elements(), stream, Same(), dw,
                 static_cast<const T*>(to));
    });
  }
}

}  // namespace lockstep::kernels::cuda
