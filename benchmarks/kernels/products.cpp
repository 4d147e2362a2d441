// The time of the products of fully connected layers: this project's beside oneDNN's, in f32 and in
// bf16, in microseconds of a processor. One thread. Gradients of weights of this project are sums
// over leaves of 16 rows by the fixed tree; oneDNN's have all rows in one sum. "packed" is the
// layout change of the weights once an iteration, for all passes. The ways run in turns, so that
// each finds little of its data in the caches. Reports the median of the turns.
//
// usage: products [--turns N]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "benchmarks/kernels/turns.h"
#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/base/numeric/bfloat16.h"
#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/engine/kernels/cpu/onednn.h"
#include "lockstep/engine/kernels/matrices/fully_connected.h"

namespace {

using namespace lockstep;
using namespace lockstep::kernels;

// Filled with numbers that are neither 0 nor denormal in either type.
class Memory {
 public:
  explicit Memory(size_t bytes, DType type = DType::f32)
      : data_(std::aligned_alloc(64, (std::max<size_t>(bytes, 1) + 63) / 64 * 64), std::free) {
    if (!data_) throw std::bad_alloc();
    const size_t size = size_of(type);
    for (size_t i = 0; i < bytes / size; ++i) {
      const auto value = static_cast<float>(static_cast<double>(i % 61) / 61 - 0.5);
      const BFloat16 narrow = to_bfloat16(value);
      const void* const from = type == DType::bf16 ? static_cast<const void*>(&narrow) : &value;
      std::memcpy(static_cast<std::byte*>(data_.get()) + i * size, from, size);
    }
  }
  void* data() const { return data_.get(); }

 private:
  std::unique_ptr<void, void (*)(void*)> data_;
};

struct Layer {
  int64_t rows, inputs, units;
};

using Work = std::function<void()>;

// The pass with its own memory.
Work bound(const Pass& pass) {
  auto memory = std::make_shared<std::vector<Memory>>();
  std::vector<void*> reads, writes;
  for (const Operand& o : pass.reads) {
    reads.push_back(memory->emplace_back(o.spec.bytes(), o.spec.dtype).data());
  }
  for (const Operand& o : pass.writes) {
    writes.push_back(memory->emplace_back(o.spec.bytes(), o.spec.dtype).data());
  }
  void* const scratch = memory->emplace_back(pass.scratch_bytes).data();
  return [memory, run = pass.bind({reads, writes, scratch})] { run({}); };
}

// Leaves of 16 rows and the additions of a tree over a power of two of them.
std::vector<ShardLeaf> leaves_of(int64_t rows) {
  std::vector<ShardLeaf> leaves;
  for (int64_t n = 0; n < rows; n += 16) {
    ShardLeaf leaf{.rows = std::min<int64_t>(16, rows - n)};
    for (int64_t i = n / 16 + 1; i % 2 == 0; i /= 2) ++leaf.additions;
    leaves.push_back(leaf);
  }
  leaves.back().root = 0;
  return leaves;
}

Work sum_over_leaves(const Pass& pass, int64_t rows) {
  auto memory = std::make_shared<std::vector<Memory>>();
  std::vector<void*> reads;
  for (const Operand& o : pass.reads) {
    reads.push_back(memory->emplace_back(o.spec.bytes(), o.spec.dtype).data());
  }
  ShardRoot root;
  for (const Operand& o : pass.writes) {
    root.writes.push_back(memory->emplace_back(o.spec.bytes()).data());
  }
  const std::vector<ShardLeaf> leaves = leaves_of(rows);
  void* const kept = memory->emplace_back(pass.over_shards.kept_bytes(leaves)).data();
  return [memory, reads, root, leaves, kept, rows, sum = pass.over_shards] {
    sum.keep(reads, {0, rows}, leaves, kept);
    for (int64_t i = 0; i < sum.update_ranges; ++i) {
      sum.add(kept, leaves, {&root, 1}, {.update_range = i, .columns = {0, sum.columns}});
    }
  };
}

// Row-major weights to the layouts of these specs.
Work packing(const Layer& layer, std::vector<TensorSpec> specs) {
  const TensorSpec plain{Shape{layer.units, layer.inputs}, DType::f32, nullptr};
  std::erase(specs, plain);
  if (specs.size() == 2 && specs[0] == specs[1]) specs.pop_back();
  std::vector<Work> all;
  for (const TensorSpec& spec : specs) all.push_back(bound(table_for({}).reorder(plain, spec)));
  return [all] {
    for (const Work& one : all) one();
  };
}

const char* const kPasses[] = {"results", "inputs", "weights", "packed"};

std::vector<Work> own(const Layer& layer, DType type) {
  const Kernel kernel = table_for({}).fully_connected(
      {{Shape{layer.rows, layer.inputs}, type, nullptr}, layer.units, true});
  return {bound(kernel.forward), bound(kernel.backward[0]),
          sum_over_leaves(kernel.backward[1], layer.rows),
          packing(layer, {kernel.forward.reads[1].spec, kernel.backward[0].reads[1].spec})};
}

std::vector<Work> by_onednn(const Layer& layer, DType type) {
  using namespace lockstep::kernels::cpu;
  const SingleThread one;
  const Shape weights_shape{layer.units, layer.inputs}, dst_shape{layer.rows, layer.units};
  const auto src = plain_desc(Shape{layer.rows, layer.inputs}, type), dst = plain_desc(dst_shape),
             diff_dst = plain_desc(dst_shape, type), bias = plain_desc(Shape{layer.units}),
             w = any_desc(weights_shape, type), diff_w = any_desc(weights_shape);
  const auto forward =
      describe<dnnl::inner_product_forward>(dnnl::prop_kind::forward_training, src, w, bias, dst);
  const auto data = describe_backward<dnnl::inner_product_backward_data>(forward, src, w, diff_dst);
  const auto weights =
      describe_backward<dnnl::inner_product_backward_weights>(forward, src, diff_w, bias, diff_dst);
  const TensorSpec packed = spec_of(forward.weights_desc()), of_data = spec_of(data.weights_desc());
  const Operand x = input(0, spec_of(src)), dy = diff_output(0, spec_of(diff_dst));
  return {bound(primitive_pass(dnnl::inner_product_forward(forward), scratch_of(forward),
                               {{DNNL_ARG_SRC, x},
                                {DNNL_ARG_WEIGHTS, input(1, packed)},
                                {DNNL_ARG_BIAS, input(2, spec_of(bias))}},
                               {{DNNL_ARG_DST, output(0, spec_of(dst))}})),
          bound(primitive_pass(dnnl::inner_product_backward_data(data), scratch_of(data),
                               {{DNNL_ARG_DIFF_DST, dy}, {DNNL_ARG_WEIGHTS, input(1, of_data)}},
                               {{DNNL_ARG_DIFF_SRC, diff_input(0, spec_of(src))}})),
          bound(primitive_pass(
              dnnl::inner_product_backward_weights(weights), scratch_of(weights),
              {{DNNL_ARG_SRC, x}, {DNNL_ARG_DIFF_DST, dy}},
              {{DNNL_ARG_DIFF_WEIGHTS, diff_input(1, spec_of(weights.diff_weights_desc()))},
               {DNNL_ARG_DIFF_BIAS, diff_input(2, spec_of(bias))}})),
          packing(layer, {packed, of_data})};
}

// Of the thread's processor, because other programs on the machine change that less.
double seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double seconds_of(const Work& work) {
  const double begin = seconds();
  work();
  return seconds() - begin;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void run(int turns) {
  const ArithmeticMode mode;
  const std::vector<Layer> layers{{16, 1024, 1024},
                                  {128, 1024, 1024},
                                  {1024, 1024, 1024},
                                  {128, 4096, 4096},
                                  // The autoencoder, the small classifier, odd sizes.
                                  {128, 784, 512},
                                  {128, 512, 64},
                                  {128, 64, 512},
                                  {128, 512, 784},
                                  {64, 200, 256},
                                  {64, 256, 256},
                                  {64, 256, 10},
                                  {37, 301, 67}};
  std::vector<DType> types{DType::f32};
  if (table_for({}).bf16) types.push_back(DType::bf16);
  std::printf("%-18s%-8s", "rows inputs units", "");
  for (const DType type : types) {
    const std::string name(name_of(type));
    std::printf("%11s %10s %5s", ("own " + name).c_str(), "oneDNN", "ratio");
  }
  std::printf("\n");
  for (const Layer& layer : layers) {
    std::vector<std::vector<Work>> ways;
    for (const DType type : types) {
      ways.push_back(own(layer, type));
      ways.push_back(by_onednn(layer, type));
    }
    const std::string name = std::to_string(layer.rows) + " " + std::to_string(layer.inputs) + " " +
                             std::to_string(layer.units);
    for (size_t pass = 0; pass < std::size(kPasses); ++pass) {
      std::vector<std::vector<double>> times(ways.size());
      for (int turn = 0; turn <= turns; ++turn) {
        for (size_t i = 0; i < ways.size(); ++i) {
          const double s = seconds_of(ways[i][pass]);
          if (turn > 0) times[i].push_back(s);  // the first turn finds cold caches
        }
      }
      std::printf("%-18s%-8s", pass == 0 ? name.c_str() : "", kPasses[pass]);
      for (size_t i = 0; i < ways.size(); i += 2) {
        const double ours = median(times[i]), theirs = median(times[i + 1]);
        std::printf("%11.1f %10.1f %5.2f", 1e6 * ours, 1e6 * theirs, theirs / ours);
      }
      std::printf("\n");
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::benchmarks::run_with_turns(argc, argv, "products", 25, run);
}
