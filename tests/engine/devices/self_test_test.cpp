// The self-test of devices: on the CPU's kernels behind a stand-in device, and on the CUDA kernels
// in the emulation. It finds planted defects, and none where there is none.
#include "lockstep/engine/kernels/self_test/self_test.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/engine/kernels/backends/kernel_info.h"
#include "lockstep/engine/kernels/backends/support.h"
#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/engine/kernels/cuda/cuda.h"
#include "lockstep/engine/kernels/images/augment_images.h"
#include "lockstep/engine/kernels/solvers/gradient_threshold.h"
#include "lockstep/engine/kernels/solvers/solver.h"
#include "tests/engine/devices/fake_device.h"

namespace lockstep::kernels {
namespace {

using devicetest::FakeDevice;

// The verdict on a device with these kernels, of small problems.
Verdict verdict_with(const Table& kernels, const std::vector<std::string>& only, size_t every = 1) {
  const FakeDevice device(0, {.kernels = &kernels});
  std::vector<SelfTestResult> results;
  SelfTestOptions options{.seconds = 600, .only = only, .large = false, .every = every};
  options.until_failure = !only.empty();
  options.end = [&](const SelfTestResult& r) { results.push_back(r); };
  EXPECT_TRUE(run_self_test(device.table(), device.memory(), options));
  return verdict_of(self_test_cases(device.table()), results);
}

// How many cases are between those that run. LOCKSTEP_ALL_CASES: all run, in some minutes.
size_t every(size_t n) { return std::getenv("LOCKSTEP_ALL_CASES") ? 1 : n; }

TEST(SelfTest, TheCpusKernelsBehindADevicePass) {
  const Verdict verdict = verdict_with(table_for({}), {}, every(11));
  for (const KernelVerdict& k : verdict.kernels) {
    EXPECT_NE(k.state, TestState::failed) << k.kernel << " " << k.type << ": " << k.seen;
  }
}

TEST(SelfTest, TheCudaKernelsPassInTheEmulation) {
  const Verdict verdict = verdict_with(cuda::table(), {}, every(53));
  std::set<std::string> kernels;
  for (const KernelVerdict& k : verdict.kernels) {
    EXPECT_NE(k.state, TestState::failed) << k.kernel << " " << k.type << ": " << k.seen;
    kernels.insert(k.kernel + " " + k.type);
  }
  for (const KernelInfo& k : kKernels) {
    if (!k.on_gpu()) continue;
    EXPECT_TRUE(kernels.contains(std::string(k.name) + " f32")) << k.name << " has no case";
    for (const char* type : {" bf16", " f16"}) {
      EXPECT_EQ(kernels.contains(std::string(k.name) + type), k.narrow()) << k.name << type;
    }
  }
  EXPECT_TRUE(kernels.contains("convolution tf32"));
}

// ---- Planted defects ----

// What a defect does with a bound pass: it runs `run` and spoils its memory.
struct Seen {
  const Pass& pass;
  std::vector<void*> reads, writes;
  void* scratch;
  const RandomContext* step;
};
using Spoil = std::function<void(const Seen&, const std::function<void()>& run)>;

// The defect that is planted, and the number of the pass that it is in: 0 forward, then backward.
struct Defect {
  Spoil spoil;
  size_t pass = 0;
  std::function<bool(const Pass&)> where = {};
};
Defect planted;
const Table* base = nullptr;

Pass spoiled(Pass pass) {
  auto described = std::make_shared<Pass>(pass);
  pass.bind = [described, spoil = planted.spoil](const PassMemory& where) {
    auto seen = std::make_shared<Seen>(Seen{*described,
                                            {where.reads.begin(), where.reads.end()},
                                            {where.writes.begin(), where.writes.end()},
                                            where.scratch,
                                            where.device_step});
    const BoundPass inner = described->bind(where);
    return BoundPass([described, seen, inner, spoil](const RandomContext& step) {
      spoil(*seen, [&] { inner(step); });
    });
  };
  return pass;
}

template <auto entry, class Problem>
Kernel with_defect(const Problem& problem) {
  Kernel kernel = (base->*entry)(problem);
  Pass* pass = &kernel.forward;
  if (planted.pass > 0) {
    if (kernel.backward.size() < planted.pass) return kernel;
    pass = &kernel.backward[planted.pass - 1];
  }
  if (!planted.where || planted.where(*pass)) *pass = spoiled(*pass);
  return kernel;
}

template <auto entry, class... Problem>
Pass pass_with_defect(const Problem&... problem) {
  Pass pass = (base->*entry)(problem...);
  return !planted.where || planted.where(pass) ? spoiled(pass) : pass;
}

float* result_of(const Seen& s) { return static_cast<float*>(s.writes[0]); }
size_t size_of_result(const Seen& s) {
  return static_cast<size_t>(s.pass.writes[0].spec.shape.elements());
}
bool f32_result(const Pass& p) { return p.writes[0].spec.dtype == DType::f32; }
bool bf16_result(const Pass& p) { return p.writes[0].spec.dtype == DType::bf16; }
bool many(const Pass& p) { return p.writes[0].spec.shape.elements() > 8; }
bool many_f32(const Pass& p) { return many(p) && f32_result(p); }

// The self-test finds the defect in this kernel, and says so.
void expect_found(const char* kernel, const Table& broken, const std::string& sign,
                  const char* type = "f32") {
  const Verdict verdict = verdict_with(broken, {kernel});
  const KernelVerdict* const found = verdict.find(kernel, type);
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->state, TestState::failed) << kernel;
  EXPECT_NE(found->seen.find(sign), std::string::npos) << kernel << ": " << found->seen;
}

class SelfTestDefects : public ::testing::TestWithParam<bool> {
 protected:
  SelfTestDefects() {
    base = GetParam() ? &cuda::table() : &table_for({});
    broken = *base;
  }
  // For kernels that are ops.
  template <auto entry, class Problem>
  void plant(Kernel (*Table::*)(const Problem&), const Defect& defect) {
    planted = defect;
    broken.*entry = with_defect<entry, Problem>;
  }
  Table broken;
};

#define PLANT(name, ...) plant<&Table::name>(&Table::name, Defect{__VA_ARGS__})

TEST_P(SelfTestDefects, AWrongStride) {
  // Two neighbors of the result change places, as if a row began one element later.
  PLANT(
      convolution,
      [](const Seen& s, const auto& run) {
        run();
        float* const y = result_of(s);
        std::rotate(y, y + 1, y + size_of_result(s));
      },
      0, many_f32);
  expect_found("convolution", broken, "differs from the CPU's");
}

TEST_P(SelfTestDefects, AWrongStrideInOneGradient) {
  PLANT(
      fully_connected,
      [](const Seen& s, const auto& run) {
        run();
        float* const y = result_of(s);
        std::rotate(y, y + 1, y + size_of_result(s));
      },
      1, many_f32);
  expect_found("fully_connected", broken, "gradient of input 0");
}

TEST_P(SelfTestDefects, ASumThatIsNotRoundedToNearest) {
  PLANT(
      addition,
      [](const Seen& s, const auto& run) {
        run();
        for (size_t i = 0; i < size_of_result(s); i += 3) {
          result_of(s)[i] = std::nextafter(result_of(s)[i], 0.0f);
        }
      },
      0, many_f32);
  expect_found("addition", broken, "instead of");
}

TEST_P(SelfTestDefects, AConversionThatCutsBits) {
  planted = {[](const Seen& s, const auto& run) {
               run();
               auto* const bits = static_cast<uint16_t*>(s.writes[0]);
               for (size_t i = 0; i < size_of_result(s); ++i) bits[i] &= 0xfffe;
             },
             0, bf16_result};
  broken.reorder = pass_with_defect<&Table::reorder, TensorSpec, TensorSpec>;
  if (!base->bf16) GTEST_SKIP() << "no bf16 here";
  expect_found("reorder", broken, "instead of", "bf16");
}

TEST_P(SelfTestDefects, ProductsInANarrowTypeThatAreCut) {
  if (!base->bf16) GTEST_SKIP() << "no bf16 here";
  // Each result becomes smaller by half a unit in its last place, as cutting does on average.
  PLANT(
      convolution,
      [](const Seen& s, const auto& run) {
        run();
        auto* const bits = static_cast<uint16_t*>(s.writes[0]);
        for (size_t i = 0; i < size_of_result(s); i += 2) {
          if ((bits[i] & 0x7fff) != 0) --bits[i];
        }
      },
      0, bf16_result);
  expect_found("convolution", broken, "too small", "bf16");
}

TEST_P(SelfTestDefects, ASumInAnotherOrder) {
  PLANT(sum, [](const Seen& s, const auto& run) {
    run();
    const auto* const x = static_cast<const float*>(s.reads[0]);
    float total = 0;
    for (int64_t i = 0; i < s.pass.reads[0].spec.shape.elements(); ++i) total += x[i];
    *result_of(s) = total * 0.1f;
  });
  expect_found("sum", broken, "instead of");
}

TEST_P(SelfTestDefects, ASumWhoseOrderChangesFromRunToRun) {
  PLANT(
      convolution,
      [](const Seen& s, const auto& run) {
        static int runs = 0;
        run();
        if (++runs % 2 == 0) result_of(s)[0] = std::nextafter(result_of(s)[0], 1e9f);
      },
      2, many_f32);
  expect_found("convolution", broken, "two runs on two streams differ");
}

TEST_P(SelfTestDefects, ASumWhoseOrderChangesLater) {
  PLANT(
      group_normalization,
      [](const Seen& s, const auto& run) {
        static std::map<void*, int> runs;
        run();
        if (++runs[s.writes[0]] % 2 == 0) result_of(s)[0] = std::nextafter(result_of(s)[0], 1e9f);
      },
      0, many_f32);
  expect_found("group_normalization", broken, "differ");
}

TEST_P(SelfTestDefects, AStaleRecording) {
  // From the third run on, the results are those of the first contents.
  PLANT(
      relu,
      [](const Seen& s, const auto& run) {
        static std::map<void*, std::pair<int, std::vector<float>>> kept;
        run();
        auto& [runs, first] = kept[s.writes[0]];
        const size_t size = size_of_result(s);
        if (first.size() != size || runs >= 4) {
          runs = 0;
          first.assign(result_of(s), result_of(s) + size);
        }
        if (++runs == 4) std::copy(first.begin(), first.end(), result_of(s));
      },
      0, many_f32);
  expect_found("relu", broken, "recording");
}

TEST_P(SelfTestDefects, AnUnwrittenTail) {
  PLANT(
      multiplication,
      [](const Seen& s, const auto& run) {
        const size_t size = size_of_result(s);
        float before;
        std::memcpy(&before, result_of(s) + size - 1, sizeof before);
        run();
        std::memcpy(result_of(s) + size - 1, &before, sizeof before);
      },
      0, many_f32);
  expect_found("multiplication", broken, "was not written");
}

TEST_P(SelfTestDefects, ATailThatIsUnwrittenForOddSizesOnly) {
  PLANT(
      dropout,
      [](const Seen& s, const auto& run) {
        const size_t size = size_of_result(s);
        float before;
        std::memcpy(&before, result_of(s) + size - 1, sizeof before);
        run();
        if (size % 4 == 3) std::memcpy(result_of(s) + size - 1, &before, sizeof before);
      },
      0, f32_result);
  expect_found("dropout", broken, "was not written");
}

TEST_P(SelfTestDefects, AWriteBeyondTheEnd) {
  planted = {[](const Seen& s, const auto& run) {
               run();
               result_of(s)[size_of_result(s)] = 0;
             },
             0, [](const Pass& p) { return p.writes[0].spec.row_major(); }};
  broken.zero = pass_with_defect<&Table::zero, TensorSpec>;
  expect_found("zero", broken, "past its end");
}

TEST_P(SelfTestDefects, AChangedInput) {
  PLANT(
      clipped_relu,
      [](const Seen& s, const auto& run) {
        run();
        static_cast<float*>(s.reads[0])[1] = 7;
      },
      1, many_f32);
  expect_found("clipped_relu", broken, "was changed");
}

TEST_P(SelfTestDefects, AStepThatIsNotReadFromTheDevice) {
  if (!GetParam()) GTEST_SKIP() << "the CPU's kernels take the step by value";
  PLANT(dropout, [](const Seen& s, const auto& run) {
    auto* const step = const_cast<RandomContext*>(s.step);
    const RandomContext now = std::exchange(*step, RandomContext{});
    run();
    *step = now;
  });
  expect_found("dropout", broken, "instead of");
}

TEST_P(SelfTestDefects, AnotherRandomNumber) {
  PLANT(
      dropout,
      [](const Seen& s, const auto& run) {
        run();
        std::swap(result_of(s)[0], result_of(s)[5]);
      },
      0, many_f32);
  expect_found("dropout", broken, "instead of");
}

TEST_P(SelfTestDefects, AVarianceWithAnotherDivisor) {
  PLANT(
      batch_normalization,
      [](const Seen& s, const auto& run) {
        run();
        for (size_t i = 0; i < size_of_result(s); ++i) result_of(s)[i] *= 1.0005f;
      },
      0, many_f32);
  expect_found("batch_normalization", broken, "differs from the CPU's");
}

TEST_P(SelfTestDefects, AGradientThatLacksATerm) {
  PLANT(
      batch_normalization,
      [](const Seen& s, const auto& run) {
        run();
        for (size_t i = 0; i < size_of_result(s); ++i) result_of(s)[i] += 0.01f;
      },
      1, many_f32);
  expect_found("batch_normalization", broken, "gradient of input 0");
}

TEST_P(SelfTestDefects, AnOverflow) {
  PLANT(
      softmax,
      [](const Seen& s, const auto& run) {
        run();
        const auto* const x = static_cast<const float*>(s.reads[0]);
        if (*std::max_element(x, x + size_of_result(s)) > 88) *result_of(s) = NAN;
      },
      0, f32_result);
  expect_found("softmax", broken, "instead of");
}

TEST_P(SelfTestDefects, AWindowThatMissesTheLastColumn) {
  PLANT(
      pooling,
      [](const Seen& s, const auto& run) {
        run();
        result_of(s)[size_of_result(s) - 1] = 0;
      },
      0, many_f32);
  expect_found("pooling", broken, "differs from the CPU's");
}

TEST_P(SelfTestDefects, ScratchMemoryThatIsTakenAsZero) {
  PLANT(
      transposed_convolution,
      [](const Seen& s, const auto& run) {
        const unsigned char before = *static_cast<unsigned char*>(s.scratch);
        run();
        result_of(s)[0] += static_cast<float>(before) * 1e-7f;
      },
      0, many_f32);
  expect_found("transposed_convolution", broken, "two runs on two streams differ");
}

TEST_P(SelfTestDefects, AParameterWhoseLastBlockIsNotUpdated) {
  if (!base->sgdm_of_all) GTEST_SKIP() << "no such kernel here";
  broken.sgdm_of_all = [](const Updates<SgdmUpdate>& all, void* stream) {
    Updates<SgdmUpdate> less = all;
    less.block_count -= 1;
    base->sgdm_of_all(less, stream);
  };
  expect_found("sgdm_of_all", broken, "weights of parameter 4");
}

TEST_P(SelfTestDefects, AnUpdateThatIsOffByOneUnit) {
  broken.adam = [](float* w, float* m, float* v, const float* g, size_t n, const AdamUpdate& u,
                   void* stream) {
    base->adam(w, m, v, g, n, u, stream);
    w[n / 2] = std::nextafter(w[n / 2], 10.0f);
  };
  expect_found("adam", broken, "weights");
}

TEST_P(SelfTestDefects, SumsOfSquaresInAnotherOrder) {
  broken.block_squares = [](const float* x, size_t n, double* sums, void* stream) {
    base->block_squares(x, n, sums, stream);
    double total = 0;
    for (size_t i = std::min(n, kNormBlock); i-- > 0;) {
      total += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    }
    sums[0] = total;
  };
  expect_found("block_squares", broken, "instead of");
}

TEST_P(SelfTestDefects, ImagesThatAreRoundedDown) {
  broken.augment_images = [](const AugmentImages& all, void* stream) {
    base->augment_images(all, stream);
    const int64_t size = all.images * all.image.channels * all.image.height * all.image.width;
    for (int64_t i = 0; i < size; i += 97) {
      if (all.destination[i] > 0) --all.destination[i];
    }
  };
  expect_found("augment_images", broken, "instead of");
}

TEST_P(SelfTestDefects, AnError) {
  broken.cross_entropy = [](const CrossEntropyProblem&) -> Kernel {
    throw Error("[cuda] an illegal memory access was encountered");
  };
  expect_found("cross_entropy", broken, "illegal memory access");
}

INSTANTIATE_TEST_SUITE_P(Kernels, SelfTestDefects, ::testing::Values(false, true),
                         [](const auto& in) { return in.param ? "Emulation" : "StandIn"; });

// As a kernel of a library that has no algorithm for this GPU.
TEST(SelfTest, AKernelThatRefusesAllProblemsHasNotPassed) {
  Table kernels = table_for({});
  kernels.relu = [](const ReluProblem&) -> Kernel { throw Unsupported("[cuda] no algorithm"); };
  const Verdict verdict = verdict_with(kernels, {"relu"});
  const KernelVerdict* const relu = verdict.find("relu", "f32");
  ASSERT_NE(relu, nullptr);
  EXPECT_EQ(relu->state, TestState::not_tested);
  EXPECT_NE(relu->seen.find("[cuda] no algorithm"), std::string::npos) << relu->seen;
  EXPECT_TRUE(refuses_all(*relu));
  const std::vector<KernelSupport> support = kernel_support(kernels, verdict);
  EXPECT_TRUE(std::none_of(support.begin(), support.end(),
                           [](const KernelSupport& s) { return s.name == "relu" && s.usable(); }));
}

TEST(SelfTest, AKernelThatRefusesSomeProblemsPasses) {
  const std::vector<SelfTestCase> cases{
      {"relu", "f32", "1"}, {"relu", "f32", "2"}, {"limit", "f32", "3"}, {"limit", "bf16", "4"}};
  const Verdict verdict = verdict_of(cases, {{0, TestState::passed, "1: too many axes"}, {1}, {2}});
  EXPECT_TRUE(verdict.passed("relu"));
  EXPECT_EQ(verdict.find("relu", "f32")->seen, "");
  EXPECT_TRUE(verdict.passed("limit"));
  EXPECT_EQ(verdict.find("limit", "bf16")->seen, "the time was over");
  EXPECT_FALSE(refuses_all(*verdict.find("limit", "bf16")));
}

TEST(SelfTest, ADeviceWithoutMemoryIsNotTested) {
  const FakeDevice device(0, {.bytes = 4096});
  std::vector<SelfTestResult> results;
  SelfTestOptions options{.only = {"relu"}, .large = false};
  options.end = [&](const SelfTestResult& r) { results.push_back(r); };
  run_self_test(device.table(), device.memory(), options);
  ASSERT_FALSE(results.empty());
  const Verdict verdict = verdict_of(self_test_cases(device.table()), results);
  EXPECT_EQ(verdict.find("relu", "f32")->state, TestState::not_tested);
  EXPECT_EQ(verdict.state(), TestState::not_tested);
}

}  // namespace
}  // namespace lockstep::kernels
