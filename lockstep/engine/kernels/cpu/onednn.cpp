#include "lockstep/engine/kernels/cpu/onednn.h"

#include <hwy/targets.h>
#include <omp.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/os/memory_room.h"
#include "lockstep/base/os/variable.h"
#include "lockstep/engine/kernels/interface/library_versions.h"

namespace lockstep::kernels::cpu {

SingleThread::SingleThread() : previous_(omp_get_max_threads()) {
  if (previous_ != 1) omp_set_num_threads(1);
}

SingleThread::~SingleThread() {
  if (previous_ != 1) omp_set_num_threads(previous_);
}

void check_memory_for_code() {
  // Room for the generators of several primitives at once, with their other allocations.
  constexpr size_t kRoom = size_t{24} << 20;
  check_memory_limit(kRoom);
}

void prepare_products() {
  static const bool prepared = [] {
    engine();
    check_memory_for_code();
    const float one = 1;
    float product = 0;
    dnnl_sgemm('N', 'N', 1, 1, 1, 1, &one, 1, &one, 1, 0, &product, 1);
    return product == 1;
  }();
  (void)prepared;
}

namespace {

// Limits must be set before oneDNN makes or describes anything, and before Highway chooses.
unsigned instruction_sets() {
  static const unsigned sets = [] {
    if (!__builtin_cpu_supports("fma")) {
      dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx);
    } else if (variable(kMaxCpuIsa) == "AVX2") {
      dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx2);
      // Better targets are lower bits. DisableTargets() would not do: in Highway 1.0.3
      // SupportedTargets() chooses a target without looking at what is disabled.
      hwy::SetSupportedTargetsForTest(hwy::SupportedTargets() & ~(HWY_AVX2 - 1));
      hwy::GetChosenTarget().DeInit();
    }
    return static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  }();
  return sets;
}
[[maybe_unused]] const unsigned at_start = instruction_sets();

}  // namespace

bool uses(dnnl_cpu_isa_t set) {
  const auto wanted = static_cast<unsigned>(set);
  return (instruction_sets() & wanted) == wanted;
}

dnnl::engine& engine() {
  static auto* instance = [] {
    instruction_sets();
    return new dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return *instance;
}

dnnl::primitive_attr attributes() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

dnnl::memory::dims dims_of(const Shape& shape) {
  return {shape.dims().begin(), shape.dims().end()};
}

WindowDims::WindowDims(const Window& w)
    : kernel(w.kernel.begin(), w.kernel.end()),
      strides(w.stride.begin(), w.stride.end()),
      dilates(w.dilation.begin(), w.dilation.end()),
      pad_begin(w.pad_begin.begin(), w.pad_begin.end()),
      pad_end(w.pad_end.begin(), w.pad_end.end()) {
  for (auto& d : dilates) --d;
}

dnnl::memory::data_type data_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return dnnl::memory::data_type::f32;
    case DType::bf16:
      return dnnl::memory::data_type::bf16;
    case DType::i32:
      return dnnl::memory::data_type::s32;
    case DType::u8:
      return dnnl::memory::data_type::u8;
    case DType::i64:
    case DType::f16:
      break;
  }
  throw Unsupported("[kernels] oneDNN does not support elements of " + std::string(name_of(dtype)));
}

namespace {

DType dtype_of(const dnnl::memory::desc& desc) {
#if DNNL_VERSION_MAJOR >= 3
  const auto type = desc.get_data_type();
#else
  const auto type = desc.data_type();
#endif
  for (DType known : {DType::bf16, DType::i32, DType::u8}) {
    if (type == data_type(known)) return known;
  }
  return DType::f32;
}

// Limit on elements. Blocked layouts pad by a factor of up to 256, and oneDNN does not check the
// number of bytes for overflow.
constexpr int64_t kMostElementsOfMemory = int64_t{1} << 50;

dnnl::memory::desc row_major_desc(const Shape& shape, DType dtype) {
  dnnl::memory::dims dims = dims_of(shape);
  if (dims.empty()) dims = {1};
  dnnl::memory::dims strides(dims.size());
  int64_t stride = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= dims[i];
  }
  return {dims, data_type(dtype), strides};
}

void reorder_values(const dnnl::memory::desc& from, const void* source,
                    const dnnl::memory::desc& to, void* destination) {
  SingleThread one;
  translated("change of layout", [&] {
    dnnl::stream stream(engine());
    for (const auto& [part, target] : sound_reorders(from, to)) {
      dnnl::memory a(part, engine(), const_cast<void*>(source));
      dnnl::memory b(target, engine(), destination);
      dnnl::reorder(a, b).execute(stream, a, b);
      stream.wait();
    }
  });
}

// oneDNN's kernels use 32-bit indices along a dimension and crash beyond that.
const Shape& countable(const Shape& shape) {
  for (int64_t d : shape.dims()) {
    if (d <= std::numeric_limits<int32_t>::max()) continue;
    throw Unsupported("[kernels] oneDNN does not support a size of " + std::to_string(d) +
                      " in a dimension of " + shape.to_string());
  }
  return shape;
}

class OnednnLayout final : public OpaqueLayout {
 public:
  OnednnLayout(dnnl::memory::desc desc, DType dtype)
      : desc_(std::move(desc)), plain_(row_major_desc(Shape(dims(desc_)), dtype)) {}

  const dnnl::memory::desc& desc() const { return desc_; }
  size_t bytes() const override { return desc_.get_size(); }
  bool equals(const OpaqueLayout& other) const override {
    const auto* o = dynamic_cast<const OnednnLayout*>(&other);
    return o && o->desc_ == desc_;
  }
  std::string to_string() const override {
    const size_t size = desc_.get_size();
    return "blocked (" + std::to_string(size) + " bytes)";
  }
  void to_row_major(const void* source, void* destination) const override {
    reorder_values(desc_, source, plain_, destination);
  }
  void from_row_major(const void* source, void* destination) const override {
    reorder_values(plain_, source, desc_, destination);
  }

  static std::vector<int64_t> dims(const dnnl::memory::desc& desc) {
#if DNNL_VERSION_MAJOR >= 3
    return desc.get_dims();
#else
    return desc.dims();
#endif
  }

 private:
  dnnl::memory::desc desc_;
  dnnl::memory::desc plain_;
};

}  // namespace

dnnl::memory::desc plain_desc(const Shape& shape, DType dtype) {
  return row_major_desc(countable(shape), dtype);
}

dnnl::memory::desc any_desc(const Shape& shape, DType dtype) {
  return {dims_of(countable(shape)), data_type(dtype), dnnl::memory::format_tag::any};
}

dnnl::memory::desc desc_of(const TensorSpec& spec) {
  if (spec.row_major()) return row_major_desc(countable(spec.shape), spec.dtype);
  const auto* layout = dynamic_cast<const OnednnLayout*>(spec.layout.get());
  if (!layout) throw InternalError("[kernels] a layout of another back end reached the CPU");
  return layout->desc();
}

TensorSpec spec_of(const dnnl::memory::desc& desc) {
  const DType dtype = dtype_of(desc);
  const Shape shape(OnednnLayout::dims(desc));
  if (shape.elements() > kMostElementsOfMemory) {
    throw Unsupported("[kernels] oneDNN does not support the layout of " + shape.to_string());
  }
  if (desc == row_major_desc(shape, dtype)) return {shape, dtype, nullptr};
  return {shape, dtype, std::make_shared<OnednnLayout>(desc, dtype)};
}

namespace {

// The blocks of a descriptor, for both versions of oneDNN.
struct Blocks {
  explicit Blocks(const dnnl::memory::desc& desc)
#if DNNL_VERSION_MAJOR >= 3
      : known(desc.get_format_kind() == dnnl::memory::format_kind::blocked),
        dims(desc.get_dims()),
        padded(desc.get_padded_dims()) {
    if (!known) return;
    strides = desc.get_strides();
    sizes = desc.get_inner_blks();
    axes = desc.get_inner_idxs();
  }
#else
      : known(desc.data.format_kind == dnnl_blocked),
        dims(desc.dims()),
        padded(desc.data.padded_dims, desc.data.padded_dims + desc.data.ndims) {
    if (!known) return;
    const auto& b = desc.data.format_desc.blocking;
    strides.assign(b.strides, b.strides + desc.data.ndims);
    sizes.assign(b.inner_blks, b.inner_blks + b.inner_nblks);
    axes.assign(b.inner_idxs, b.inner_idxs + b.inner_nblks);
  }
#endif

  // Elements of a block along a dimension.
  int64_t block(size_t axis) const {
    int64_t elements = 1;
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (static_cast<size_t>(axes[i]) == axis) elements *= sizes[i];
    }
    return elements;
  }

  const bool known;  // false: a layout that oneDNN does not describe
  const dnnl::memory::dims dims, padded;
  dnnl::memory::dims strides;      // of elements, or of blocks
  dnnl::memory::dims sizes, axes;  // of the inner blocks, from the outermost to the innermost
};

// The dimensions whose last block is partial, in either layout.
struct PartialBlocks {
  PartialBlocks(const Blocks& from, const Blocks& to) {
    for (size_t axis = 0; axis < from.dims.size(); ++axis) {
      const int64_t block = std::lcm(from.block(axis), to.block(axis));
      const int64_t rest = from.dims[axis] % block;
      if (rest > 0) axes.push_back(axis);
      whole.push_back(rest > 0 ? from.dims[axis] - rest : 0);
    }
  }
  // Whether a dimension has whole blocks, too.
  bool any() const {
    return std::any_of(whole.begin(), whole.end(), [](int64_t size) { return size > 0; });
  }

  std::vector<size_t> axes;
  dnnl::memory::dims whole;  // elements of the whole blocks before a partial one
};

// At least as many elements as oneDNN takes for the innermost loop over the destination.
int64_t longest_run(const Blocks& from, const Blocks& to, const PartialBlocks& partial) {
  int64_t run = 1;
  for (size_t i = to.sizes.size(); i-- > 0;) {
    run *= to.sizes[i];
    if (partial.whole[static_cast<size_t>(to.axes[i])] > 0) return run;
  }
  std::vector<size_t> order(to.dims.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return to.strides[a] < to.strides[b]; });
  for (size_t axis : order) {
    const int64_t block = std::max(from.block(axis), to.block(axis));
    if (block == 1) {
      run *= to.dims[axis];
    } else if (to.dims[axis] > block) {
      return run;  // the step from block to block is another one
    }
  }
  return run;
}

void add_reorders(const dnnl::memory::desc& from, const dnnl::memory::desc& to,
                  const PartialBlocks& partial, size_t axis,
                  std::vector<std::pair<dnnl::memory::desc, dnnl::memory::desc>>& all) {
  while (axis < partial.whole.size() && partial.whole[axis] == 0) ++axis;
  if (axis == partial.whole.size()) {
    all.emplace_back(from, to);
    return;
  }
  const int64_t whole = partial.whole[axis];
  dnnl::memory::dims dims = Blocks(from).dims, first(dims.size(), 0);
  const int64_t rest = dims[axis] - whole;
  dims[axis] = whole;
  add_reorders(from.submemory_desc(dims, first), to.submemory_desc(dims, first), partial, axis + 1,
               all);
  first[axis] = whole;
  dims[axis] = rest;
  add_reorders(from.submemory_desc(dims, first), to.submemory_desc(dims, first), partial, axis + 1,
               all);
}

}  // namespace

bool may_write_beyond(const dnnl::memory::desc& from, const dnnl::memory::desc& to) {
  const Blocks a(from), b(to);
  if (b.sizes.empty()) return false;
  for (size_t i = 0; i < std::min(a.padded.size(), b.padded.size()); ++i) {
    if (a.padded[i] > b.padded[i]) return true;
  }
  return false;
}

bool may_leave_unwritten(const dnnl::memory::desc& from, const dnnl::memory::desc& to) {
  // oneDNN compares a run with three quarters of the first cache. This is less on any processor,
  // and the result does not depend on the processor.
  constexpr int64_t kShortRun = 12 << 10;  // bytes
  const Blocks a(from), b(to);
  if (!a.known || !b.known) return false;
  const PartialBlocks partial(a, b);
  if (!partial.any()) return false;
  // The loop over a block that is contiguous in the source stays innermost, if nothing else is
  // partial.
  if (partial.axes.size() == 1 && a.axes.size() > 0) {
    const size_t axis = partial.axes[0];
    if (static_cast<size_t>(a.axes.back()) == axis && a.sizes.back() == a.block(axis)) return false;
  }
  return longest_run(a, b, partial) > kShortRun / static_cast<int64_t>(size_of(dtype_of(from)));
}

std::vector<std::pair<dnnl::memory::desc, dnnl::memory::desc>> sound_reorders(
    const dnnl::memory::desc& from, const dnnl::memory::desc& to) {
  if (!may_leave_unwritten(from, to)) return {{from, to}};
  std::vector<std::pair<dnnl::memory::desc, dnnl::memory::desc>> all;
  add_reorders(from, to, PartialBlocks(Blocks(from), Blocks(to)), 0, all);
  return all;
}

bool leaves_gradients_unwritten(const Window& window, const Shape& image, const Shape& result) {
  if (window.kernel.axes() == 3 && window.stride[0] > 1) {
    const int64_t last = (result[2] - 1) * window.stride[0] - window.pad_begin[0];
    if (window.pad_begin[0] > 0 || last + window_extent(window, 0) > image[2]) return true;
  }
  for (int axis = 0; axis < window.axes(); ++axis) {
    if (window.stride[static_cast<size_t>(axis)] > 1 &&
        meets_only_padding(window, axis, image[2 + axis], result[2 + axis])) {
      return true;
    }
  }
  return false;
}

bool weights_gradient_fails_in_bf16(const Window& window, const Shape& image, const Shape& result) {
  constexpr int64_t most_columns = 736;
  const bool amx = uses(dnnl_cpu_isa_avx512_core_amx);
  const int columns = window.axes() - 1;  // the last axis
  const bool is_never_made =
      amx && window.kernel[static_cast<size_t>(columns)] > 1 && result[2 + columns] > most_columns;
  return is_never_made || leaves_gradients_unwritten(window, image, result);
}

Pass primitive_pass(const dnnl::primitive& primitive, size_t scratch_bytes,
                    std::vector<Argument> reads, std::vector<Argument> writes) {
  Pass pass;
  pass.scratch_bytes = scratch_bytes;
  std::vector<std::pair<int, dnnl::memory::desc>> names;
  auto describe_operand = [&](const Argument& a) {
    const TensorSpec& spec = a.operand.spec;
    if (a.seen_as) {
      names.emplace_back(a.name, *a.seen_as);
    } else if (a.operand.kind == Operand::Kind::workspace) {
      names.emplace_back(a.name, row_major_desc(spec.shape, DType::u8));
    } else {
      names.emplace_back(a.name, desc_of(spec));
    }
  };
  for (auto& a : reads) {
    describe_operand(a);
    pass.reads.push_back(a.operand);
  }
  for (auto& a : writes) {
    describe_operand(a);
    pass.writes.push_back(a.operand);
  }
  pass.bind = [primitive, names = std::move(names), scratch_bytes](const PassMemory& where) {
    struct Call {
      dnnl::primitive primitive;
      dnnl::stream stream;
      std::vector<dnnl::memory> memories;
      std::vector<dnnl_exec_arg_t> arguments;
    };
    SingleThread one;
    const auto call = translated("binding of memory", [&] {
      auto made = std::make_shared<Call>(Call{primitive, dnnl::stream(engine()), {}, {}});
      const auto add = [&](int name, const dnnl::memory::desc& desc, void* data) {
        made->memories.emplace_back(desc, engine(), data);
        made->arguments.push_back({name, made->memories.back().get()});
      };
      for (size_t i = 0; i < names.size(); ++i) {
        const size_t r = where.reads.size();
        add(names[i].first, names[i].second, i < r ? where.reads[i] : where.writes[i - r]);
      }
      if (scratch_bytes > 0) {
        add(DNNL_ARG_SCRATCHPAD,
            row_major_desc(Shape{static_cast<int64_t>(scratch_bytes)}, DType::u8), where.scratch);
      }
      return made;
    });
    return BoundPass([call](const RandomContext&) {
      SingleThread thread;
      const dnnl_status_t status =
          dnnl_primitive_execute(call->primitive.get(), call->stream.get(),
                                 static_cast<int>(call->arguments.size()), call->arguments.data());
      if (status != dnnl_success) {
        throw InternalError("[kernels] a primitive failed with status " + std::to_string(status));
      }
    });
  };
  return pass;
}

bool computes_bf16() { return uses(dnnl_cpu_isa_avx512_core_bf16); }

}  // namespace lockstep::kernels::cpu
