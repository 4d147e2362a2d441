#include <algorithm>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "lockstep/engine/kernels/cuda/cuda.h"
#include "lockstep/engine/kernels/cuda/cudnn_convolution.h"
#include "lockstep/engine/kernels/cuda/layout.h"

namespace lockstep::kernels::cuda {
namespace {

int as_int(int64_t n) {
  if (n > std::numeric_limits<int>::max()) {
    throw Unsupported(
        "[cuda] cuDNN counts in 32 bits, this convolution has a dimension or stride of " +
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

// Strides of n, c and space in memory without gaps.
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

// A cuDNN descriptor that is destroyed with its owner.
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

// One pass: its window with the arithmetic of the chosen algorithm.
template <class Algorithm>
struct Choice {
  WindowDescriptor window;
  Algorithm algorithm{};
  size_t workspace = 0;
};

bool arithmetic_allowed(cudnnMathType_t math) {
  return arithmetic().tf32 || math == CUDNN_FMA_MATH || math == CUDNN_DEFAULT_MATH;
}

// Takes the first candidate that may be used. `workspace_of` asks for an algorithm's workspace,
// whose failure says that the algorithm does not do this problem. `fallbacks` are documented to be
// deterministic, for problems that the heuristics know nothing about.
template <class Algorithm, class Candidate, class WorkspaceOf>
void choose(const char* what, std::span<const Candidate> candidates,
            std::initializer_list<Algorithm> fallbacks, const WorkspaceOf& workspace_of,
            Choice<Algorithm>& choice) {
  // Without TF32 the descriptor forbids it, whatever name a candidate gives its arithmetic.
  const auto fits = [&](Algorithm algorithm, cudnnMathType_t math) {
    const cudnnMathType_t used = arithmetic().tf32 ? math : CUDNN_FMA_MATH;
    check(cudnnSetConvolutionMathType(choice.window.get(), used), "setting the arithmetic");
    size_t bytes = 0;
    if (workspace_of(algorithm, &bytes) != CUDNN_STATUS_SUCCESS) return false;
    if (bytes > kMostLibraryScratch) return false;
    choice.algorithm = algorithm;
    choice.workspace = bytes;
    return true;
  };
  for (const Candidate& c : candidates) {
    const bool allowed = !deterministic() || c.determinism == CUDNN_DETERMINISTIC;
    if (c.status == CUDNN_STATUS_SUCCESS && allowed && arithmetic_allowed(c.mathType) &&
        fits(c.algo, c.mathType)) {
      return;
    }
  }
  for (const Algorithm a : fallbacks) {
    if (fits(a, CUDNN_DEFAULT_MATH)) return;
  }
  throw Unsupported(std::string("[cuda] cuDNN has no ") + what + " for this convolution" +
                    (deterministic() ? " that gives the same bits each time" : "") +
                    cudnn_details());
}

constexpr float kOne = 1, kZero = 0;

// One axis as images of one row; two and three as they are.
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
          given.groups};
}

}  // namespace

struct CudnnConvolution::Descriptors {
  TensorDescriptor x, y;
  FilterDescriptor w;
  Choice<cudnnConvolutionFwdAlgo_t> forward;
  Choice<cudnnConvolutionBwdDataAlgo_t> data;
  Choice<cudnnConvolutionBwdFilterAlgo_t> weights;

  void choose_forward(cudnnHandle_t handle) {
    constexpr int most = CUDNN_CONVOLUTION_FWD_ALGO_COUNT;
    cudnnConvolutionFwdAlgoPerf_t found[most];
    int count = 0;
    if (cudnnGetConvolutionForwardAlgorithm_v7(handle, x.get(), w.get(), forward.window.get(),
                                               y.get(), most, &count,
                                               found) != CUDNN_STATUS_SUCCESS) {
      count = 0;
    }
    choose(
        "forward pass", std::span<const cudnnConvolutionFwdAlgoPerf_t>(found, size_t(count)),
        {CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM,
         CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM},
        [&](cudnnConvolutionFwdAlgo_t a, size_t* bytes) {
          return cudnnGetConvolutionForwardWorkspaceSize(handle, x.get(), w.get(),
                                                         forward.window.get(), y.get(), a, bytes);
        },
        forward);
  }

  void choose_data(cudnnHandle_t handle) {
    constexpr int most = CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT;
    cudnnConvolutionBwdDataAlgoPerf_t found[most];
    int count = 0;
    if (cudnnGetConvolutionBackwardDataAlgorithm_v7(handle, w.get(), y.get(), data.window.get(),
                                                    x.get(), most, &count,
                                                    found) != CUDNN_STATUS_SUCCESS) {
      count = 0;
    }
    choose(
        "backward pass for data",
        std::span<const cudnnConvolutionBwdDataAlgoPerf_t>(found, size_t(count)),
        {CUDNN_CONVOLUTION_BWD_DATA_ALGO_1},
        [&](cudnnConvolutionBwdDataAlgo_t a, size_t* bytes) {
          return cudnnGetConvolutionBackwardDataWorkspaceSize(handle, w.get(), y.get(),
                                                              data.window.get(), x.get(), a, bytes);
        },
        data);
  }

  void choose_weights(cudnnHandle_t handle) {
    constexpr int most = CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT;
    cudnnConvolutionBwdFilterAlgoPerf_t found[most];
    int count = 0;
    if (cudnnGetConvolutionBackwardFilterAlgorithm_v7(handle, x.get(), y.get(),
                                                      weights.window.get(), w.get(), most, &count,
                                                      found) != CUDNN_STATUS_SUCCESS) {
      count = 0;
    }
    choose(
        "backward pass for weights",
        std::span<const cudnnConvolutionBwdFilterAlgoPerf_t>(found, size_t(count)),
        {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1},
        [&](cudnnConvolutionBwdFilterAlgo_t a, size_t* bytes) {
          return cudnnGetConvolutionBackwardFilterWorkspaceSize(
              handle, x.get(), y.get(), weights.window.get(), w.get(), a, bytes);
        },
        weights);
  }
};

std::shared_ptr<const CudnnConvolution> CudnnConvolution::make(const ConvolutionGeometry& g) {
  using Made = std::shared_ptr<const CudnnConvolution>;
  try {
    return Made(new CudnnConvolution(g, CUDNN_TENSOR_NHWC));
  } catch (const Unsupported&) {
    return Made(new CudnnConvolution(g, CUDNN_TENSOR_NCHW));
  }
}

CudnnConvolution::~CudnnConvolution() = default;

CudnnConvolution::CudnnConvolution(const ConvolutionGeometry& given, cudnnTensorFormat_t format)
    : format_(format), descriptors_(std::make_unique<Descriptors>()) {
  const auto spec = [&](const Shape& shape) {
    return format == CUDNN_TENSOR_NHWC ? channels_last(shape)
                                       : TensorSpec{shape, DType::f32, nullptr};
  };
  x_ = spec(given.x);
  w_ = spec(given.w);
  y_ = spec(given.y);
  const ConvolutionGeometry g = as_images(given);

  // By axis of a volume: those that the window has not come first, of one element, without padding.
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
  // By strides, which say channels last for any number of axes.
  const auto describe = [&](const TensorDescriptor& t, const std::vector<int>& dims) {
    check(cudnnSetTensorNdDescriptor(t.get(), CUDNN_DATA_FLOAT, static_cast<int>(dims.size()),
                                     dims.data(), packed_strides(dims, format).data()),
          "describing a tensor");
  };
  std::vector<int64_t> x_dims = g.x.dims();
  for (size_t a = 0; a < axes; ++a) x_dims[2 + a] += before[missing + a] + after[missing + a];
  describe(d.x, as_ints(x_dims));
  describe(d.y, as_ints(g.y.dims()));
  const std::vector<int> w_dims = as_ints(g.w.dims());
  check(cudnnSetFilterNdDescriptor(d.w.get(), CUDNN_DATA_FLOAT, format,
                                   static_cast<int>(w_dims.size()), w_dims.data()),
        "describing weights");
  const std::vector<int> pads = as_ints(common), strides = as_ints(w.stride),
                         dilations = as_ints(w.dilation);
  const cudnnMathType_t math = arithmetic().tf32 ? CUDNN_DEFAULT_MATH : CUDNN_FMA_MATH;
  for (const auto window : {d.forward.window.get(), d.data.window.get(), d.weights.window.get()}) {
    check(cudnnSetConvolutionNdDescriptor(window, static_cast<int>(axes), pads.data(),
                                          strides.data(), dilations.data(), CUDNN_CROSS_CORRELATION,
                                          CUDNN_DATA_FLOAT),
          "describing a window");
    check(cudnnSetConvolutionGroupCount(window, as_int(g.groups)), "setting groups");
    check(cudnnSetConvolutionMathType(window, math), "setting the arithmetic");
  }

  const cudnnHandle_t handle = cudnn_handle(nullptr);
  d.choose_forward(handle);
  d.choose_data(handle);
  d.choose_weights(handle);
  workspace_ = {aligned_scratch(d.forward.workspace), aligned_scratch(d.data.workspace),
                aligned_scratch(d.weights.workspace)};
  scratch_ = workspace_;
  if (frame_.any()) {
    const size_t bytes = aligned_scratch(static_cast<size_t>(framed.elements()) * sizeof(float));
    scratch_.forward += bytes;
    scratch_.data += bytes;
    scratch_.weights += bytes;
  }
}

ChannelPlaces CudnnConvolution::places(const TensorSpec& activations) const {
  const Extents e = extents_of(activations.shape);
  return {e.outer * e.space, e.channels, format_ == CUDNN_TENSOR_NHWC ? 1 : e.space};
}

// x as cuDNN shall see it: with its frame, behind the workspace, where it has one.
const float* CudnnConvolution::padded(const float* x, size_t workspace, void* scratch,
                                      void* queue) const {
  if (!frame_.any()) return x;
  auto* framed = reinterpret_cast<float*>(static_cast<std::byte*>(scratch) + workspace);
  launch_pad(volumes_, frame_, x, framed, queue);
  return framed;
}

void CudnnConvolution::forward(const float* x, const float* w, float* y, void* scratch,
                               void* queue) const {
  const Descriptors& d = *descriptors_;
  const float* seen = padded(x, workspace_.forward, scratch, queue);
  check(cudnnConvolutionForward(cudnn_handle(queue), &kOne, d.x.get(), seen, d.w.get(), w,
                                d.forward.window.get(), d.forward.algorithm, scratch,
                                d.forward.workspace, &kZero, d.y.get(), y),
        "convolution");
}

void CudnnConvolution::data(const float* w, const float* dy, float* dx, void* scratch,
                            void* queue) const {
  const Descriptors& d = *descriptors_;
  float* seen = dx;
  if (frame_.any()) {
    seen = reinterpret_cast<float*>(static_cast<std::byte*>(scratch) + workspace_.data);
  }
  check(cudnnConvolutionBackwardData(cudnn_handle(queue), &kOne, d.w.get(), w, d.y.get(), dy,
                                     d.data.window.get(), d.data.algorithm, scratch,
                                     d.data.workspace, &kZero, d.x.get(), seen),
        "convolution, backward for data");
  if (frame_.any()) launch_crop(volumes_, frame_, seen, dx, queue);
}

void CudnnConvolution::weights(const float* x, const float* dy, float* dw, void* scratch,
                               void* queue) const {
  const Descriptors& d = *descriptors_;
  const float* seen = padded(x, workspace_.weights, scratch, queue);
  check(cudnnConvolutionBackwardFilter(cudnn_handle(queue), &kOne, d.x.get(), seen, d.y.get(), dy,
                                       d.weights.window.get(), d.weights.algorithm, scratch,
                                       d.weights.workspace, &kZero, d.w.get(), dw),
        "convolution, backward for weights");
}

}  // namespace lockstep::kernels::cuda
