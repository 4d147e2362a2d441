#include "lockstep/train/iteration/first_shard.h"

#include <fmt/format.h>

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <cstring>
#include <new>
#include <optional>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/base/numeric/random.h"
#include "lockstep/base/os/memory_room.h"
#include "lockstep/engine/autograd/tape.h"
#include "lockstep/engine/device/allocator.h"
#include "lockstep/engine/device/pinned.h"
#include "lockstep/engine/kernels/backends/functions.h"
#include "lockstep/engine/kernels/images/augment_images.h"
#include "lockstep/train/options/options.h"
#include "lockstep/train/programs/function_loss_program.h"

namespace lockstep {
namespace {

struct ShardResult {
  double loss = 0;
  std::vector<std::vector<float>> gradients;  // by parameter, row-major
  Digest summary = {};                        // of all other results
};

// The gradients that a program has left on a device.
std::vector<std::vector<float>> row_major_gradients(const GradientLayout& layout, std::byte* data,
                                                    Device device) {
  std::vector<std::vector<float>> gradients;
  for (const GradientLayout::Entry& entry : layout.entries) {
    const Tensor there = Tensor::view(data + entry.offset, entry.spec, nullptr, device);
    gradients.push_back(convert(there, entry.spec.plain()).to_vector());
  }
  return gradients;
}

ShardResult computed_by(MiniBatchProgram& program, Device device, ShardTask task) {
  std::optional<Pinned> sent, returned;
  Memory sent_there, returned_there;
  if (!device.is_cpu()) {
    const ShardStaging bytes = program.staging(task.rows.count);
    sent.emplace(memory_of(device), bytes.sent);
    returned.emplace(memory_of(device), bytes.returned);
    sent_there = allocate(bytes.sent, device);
    returned_there = allocate(bytes.returned, device);
    task.sent = sent->data();
    task.returned = returned->data();
    task.sent_there = sent_there.as<std::byte>();
    task.returned_there = returned_there.as<std::byte>();
  }
  std::vector<std::byte> summary(program.summary_bytes());
  task.summary = summary.data();
  const ShardGradients gradients = program.compute(task);
  program.wait();
  program.complete(task);
  return {program.loss_of(task),
          row_major_gradients(program.gradient_layout(), gradients.data, device),
          program.summary_digest(task)};
}

bool same_bits(const ShardResult& a, const ShardResult& b) {
  const auto same = [](const std::vector<float>& x, const std::vector<float>& y) {
    return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
  };
  return a.summary == b.summary && std::equal(a.gradients.begin(), a.gradients.end(),
                                              b.gradients.begin(), b.gradients.end(), same);
}

double norm(const std::vector<float>& values) {
  double sum = 0;
  for (const float v : values) sum += static_cast<double>(v) * static_cast<double>(v);
  return std::sqrt(sum);
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    sum += d * d;
  }
  return std::sqrt(sum);
}

// The index of the largest element, in size, of a - b; of a without b.
size_t largest(const std::vector<float>& a, const std::vector<float>* b = nullptr) {
  size_t most = 0;
  const auto size_at = [&](size_t i) { return std::abs(b ? a[i] - (*b)[i] : a[i]); };
  for (size_t i = 1; i < a.size(); ++i) {
    if (size_at(i) > size_at(most)) most = i;
  }
  return most;
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.empty()) return 0;
  const size_t i = largest(a, &b);
  return std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
}

bool finite(const ShardResult& r) {
  if (!std::isfinite(r.loss)) return false;
  return std::all_of(r.gradients.begin(), r.gradients.end(),
                     [](const auto& g) { return std::isfinite(norm(g)); });
}

// Rounds in another direction during its lifetime.
class OtherRounding {
 public:
  explicit OtherRounding(int direction) : before_(std::fegetround()) { std::fesetround(direction); }
  ~OtherRounding() { std::fesetround(before_); }
  OtherRounding(const OtherRounding&) = delete;
  OtherRounding& operator=(const OtherRounding&) = delete;

 private:
  const int before_;
};

// The network on the CPU, and its program for a mini-batch.
class OnCpu {
 public:
  OnCpu(const Network& network, const TrainingOptions& options, const std::vector<DType>& inputs,
        const TrainingLoss* loss, const MiniBatch& batch, const ShardTask& task)
      : network_(network.clone()), task_(task) {
    network_.to({});
    TrainingOptions here = options;
    here.device = "cpu";
    here.precision = {.type = Precision::fp32, .loss_scale = options.precision.scale_of_losses()};
    here.freeze = here.unfreeze = {};  // all gradients are compared, and a device computes all
    if (loss) {
      program_ = std::make_unique<FunctionLossProgram>(network_, here, inputs, *loss);
    } else {
      const bool mixed = array_after(batch, inputs.size(), "label_shares") != nullptr;
      program_ = std::make_unique<LossProgram>(network_, here, inputs, nullptr, mixed);
    }
    take(batch, inputs);
    task_.worker = 0;
    task_.repeat = 0;
  }

  ShardResult compute() {
    network_.packed().pack_all();
    program_->prepare({&task_.rows, 1}, 1);
    program_->prepare_shards();
    program_->set_batch(batch_);
    program_->prepare({&task_.rows, 1}, 1);  // for this mini-batch
    // A custom loss counts the shards of the mini-batch from 0.
    ShardTask task = task_;
    task.shard = 0;
    return computed_by(*program_, {}, task);
  }

  // Changes each parameter by a share of its size, up or down; `draw` selects which.
  void change_parameters(double share, uint64_t draw) {
    uint64_t number = 0;
    for (const Parameter& p : network_.parameters()) {
      const RandomStream random({.seed = draw, .use = RandomUse::user, .a = number++});
      auto* const values = p.value.data<float>();
      for (int64_t i = 0; i < p.value.shape().elements(); ++i) {
        const bool up = (random.bits(static_cast<uint64_t>(i)) & 1) != 0;
        values[i] *= static_cast<float>(up ? 1 + share : 1 - share);
      }
    }
  }

 private:
  // Takes the mini-batch, with the shard's images augmented.
  void take(const MiniBatch& batch, const std::vector<DType>& inputs) {
    batch_ = batch;
    batch_.tensors.clear();
    if (batch.maps.empty()) return;
    const auto first = static_cast<size_t>(task_.rows.first);
    for (size_t k = 0; k < inputs.size(); ++k) {
      if (inputs[k] != DType::u8) continue;
      const Shape image = network_.input_shapes().at(k);
      const size_t at = first * static_cast<size_t>(image.elements());
      kernels::functions_for({}).augment_images(
          {batch.arrays[k].values<uint8_t>().data() + at, batch.maps.data() + first,
           batch_.arrays[k].values<uint8_t>().data() + at, task_.rows.count,
           kernels::planar(image[0], image[1], image[2])},
          nullptr);
    }
    batch_.maps.clear();
  }

  Network network_;
  ShardTask task_;
  MiniBatch batch_;
  std::unique_ptr<MiniBatchProgram> program_;
};

struct Compared {
  double difference = 0, bound = 0, size = 0;
  bool outside() const { return difference > bound; }
  double of_bound() const { return difference > 0 ? difference / bound : 0; }
};

struct ComparedGradient {
  Compared norm, element;
  bool outside() const { return norm.outside() || element.outside(); }
};

struct Comparison {
  Compared loss;
  std::vector<ComparedGradient> gradients;

  bool agrees() const {
    return !loss.outside() && std::none_of(gradients.begin(), gradients.end(),
                                           [](const auto& c) { return c.outside(); });
  }
};

// `changed`: results that show how much rounding matters.
Comparison compare(const ShardResult& there, const ShardResult& here,
                   const std::vector<ShardResult>& changed, const FirstShardBounds& bounds,
                   int64_t rows) {
  constexpr double tolerated = FirstShardBounds::kTolerated;
  Comparison result;
  // The largest difference between the changed results and the CPU's.
  const auto most = [&](const auto& difference) {
    double largest = 0;
    for (const ShardResult& c : changed) largest = std::max(largest, difference(c));
    return tolerated * largest;
  };
  // Losses of a few units of rounding for each observation say nothing.
  const double least = bounds.loss * 0.01 * static_cast<double>(rows);
  result.loss = {std::abs(there.loss - here.loss),
                 bounds.loss * std::abs(here.loss) + least +
                     most([&](const ShardResult& c) { return std::abs(c.loss - here.loss); }),
                 std::abs(here.loss)};
  double squares = 0;
  for (const auto& g : here.gradients) squares += norm(g) * norm(g);
  const double all = std::sqrt(squares);
  for (size_t p = 0; p < here.gradients.size(); ++p) {
    const std::vector<float>& g = here.gradients[p];
    const double size = norm(g);
    const double top = g.empty() ? 0 : std::abs(static_cast<double>(g[largest(g)]));
    ComparedGradient c;
    c.norm = {distance(there.gradients[p], g),
              bounds.gradient * size + bounds.all * all +
                  most([&](const ShardResult& r) { return distance(r.gradients[p], g); }),
              size};
    c.element = {largest_difference(there.gradients[p], g),
                 bounds.element * top + bounds.all * all + most([&](const ShardResult& r) {
                   return largest_difference(r.gradients[p], g);
                 }),
                 top};
    result.gradients.push_back(c);
  }
  return result;
}

std::string describe(const ComparedGradient& c, const std::vector<float>& there,
                     const std::vector<float>& here) {
  const size_t at = largest(there, &here);
  return fmt::format(
      "its norm is {:.3g}, that of the difference {:.3g} (bound {:.3g}); element {} of {} is "
      "{:.6g} instead of {:.6g} (bound {:.3g})",
      c.norm.size, c.norm.difference, c.norm.bound, at, here.size(), static_cast<double>(there[at]),
      static_cast<double>(here[at]), c.element.bound);
}

[[noreturn]] void refuse(Device device, const std::string& what) {
  throw Error("[training] " + to_string(device) +
                  " and the CPU disagree on the first shard of this training: " + what,
              "set device = \"cpu\", or another precision; compare_first_shard = false trains "
              "nevertheless");
}

std::string rows_of(const ShardTask& task) {
  return std::to_string(task.rows.count) +
         (task.rows.count == 1 ? " observation" : " observations");
}

[[noreturn]] void refuse(const Network& network, const Comparison& all, const ShardResult& there,
                         const ShardResult& here) {
  std::string what = fmt::format("its loss is {:.6g} instead of {:.6g}{}", there.loss, here.loss,
                                 all.loss.outside() ? "" : " (within bounds)");
  int outside = 0;
  size_t last = 0;
  for (size_t p = 0; p < all.gradients.size(); ++p) {
    if (!all.gradients[p].outside()) continue;
    ++outside;
    last = p;
  }
  if (outside > 0) {
    // An error in the backward pass spreads towards the input.
    what += fmt::format(
        "; the gradients of {} of {} parameters differ, nearest to the output that of {}: {}",
        outside, all.gradients.size(), network.parameters()[last].name,
        describe(all.gradients[last], there.gradients[last], here.gradients[last]));
  }
  refuse(network.device(), what);
}

}  // namespace

FirstShardBounds FirstShardBounds::of(Precision precision) {
  if (precision == Precision::fp32) {
    return {.loss = 1e-4, .gradient = 1e-3, .element = 1e-2, .all = 1e-5, .change = 0x1p-14};
  }
  if (precision == Precision::bf16) {
    return {.loss = 2e-2, .gradient = 5e-2, .element = 0.2, .all = 4e-3, .change = 0x1p-8};
  }
  return {.loss = 5e-3, .gradient = 2e-2, .element = 0.1, .all = 1e-3, .change = 0x1p-10};
}

std::string compare_first_shard(const Network& network, MiniBatchProgram& program,
                                const TrainingOptions& options, const std::vector<DType>& inputs,
                                const TrainingLoss* loss, const MiniBatch& batch,
                                const ShardTask& task) {
  const ArithmeticMode mode;
  const Device device = network.device();
  ShardTask apart = task;
  apart.repeat = 1;  // not the result that the sum takes
  const ShardResult there = computed_by(program, device, apart);
  for (const char* const run : {"while it is recorded", "from its recording"}) {
    if (!options.deterministic || same_bits(there, computed_by(program, device, apart))) continue;
    refuse(device, std::string("a second computation, ") + run + ", has other bits");
  }
  const auto uncompared = [&](const std::string& why) {
    return "the first shard (" + rows_of(task) + ") was not compared with the CPU's: " + why;
  };
  const FirstShardBounds bounds = FirstShardBounds::of(options.precision.type);
  try {
    OnCpu cpu(network, options, inputs, loss, batch, task);
    const ShardResult here = cpu.compute();
    if (!finite(here)) return uncompared("its loss or gradients are not finite");
    if (!finite(there)) {
      if (options.precision.type == Precision::fp16) {
        return uncompared("its loss or gradients are not finite in fp16");
      }
      refuse(device, "its loss or gradients are not finite");
    }
    Comparison all = compare(there, here, {}, bounds, task.rows.count);
    if (!all.agrees()) {
      std::vector<ShardResult> changed;
      uint64_t draw = 0;
      for (const int direction : {FE_UPWARD, FE_TOWARDZERO}) {
        OnCpu other(network, options, inputs, loss, batch, task);
        other.change_parameters(bounds.change, ++draw);
        const OtherRounding rounding(direction);
        changed.push_back(other.compute());
        if (!finite(changed.back())) return uncompared("its loss or gradients are hardly finite");
      }
      all = compare(there, here, changed, bounds, task.rows.count);
    }
    if (!all.agrees()) refuse(network, all, there, here);
    double most = 0;
    for (const ComparedGradient& c : all.gradients) {
      most = std::max({most, c.norm.of_bound(), c.element.of_bound()});
    }
    return fmt::format(
        "the first shard ({}) on {} agrees with the CPU's: its loss is {:.6g} instead of {:.6g}, "
        "gradients differ by at most {:.2g} % of their bounds",
        rows_of(task), to_string(device), there.loss, here.loss, 100 * most);
  } catch (const Unsupported& error) {
    return uncompared(error.what());
  } catch (const InvalidArgument& error) {
    // A loss of the user may keep tensors on the device.
    return uncompared(error.what());
  } catch (const OutOfMemory& error) {
    return uncompared(error.what());
  } catch (const std::bad_alloc&) {
    return uncompared("this machine has not enough memory for it");
  }
}

}  // namespace lockstep
