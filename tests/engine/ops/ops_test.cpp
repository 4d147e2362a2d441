// Every op on every device against the reference.
#include "lockstep/engine/ops/ops.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/engine/graph/op.h"
#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/engine/kernels/devices.h"
#include "tests/engine/ops/cases.h"

namespace lockstep::optest {
namespace {

// Each test of a case refers to the one case: copies of its arrays took longer than most tests.
struct Parameter {
  Device device;
  std::shared_ptr<const Case> test;
};

std::vector<Parameter> parameters() {
  std::vector<Parameter> all;
  for (Device device : devices()) {
    const auto& table = kernels::table_for(device);
    for (Case& offered : offered_cases(device)) {
      const auto c = std::make_shared<const Case>(std::move(offered));
      all.push_back({device, c});
      if (!takes_narrow(*c)) continue;
      for (const DType dtype : narrow_types(table)) {
        all.push_back({device, std::make_shared<const Case>(in_narrow(dtype, *c))});
      }
    }
  }
  return all;
}

std::string name_of_parameter(const testing::TestParamInfo<Parameter>& info) {
  const Case& c = *info.param.test;
  std::string name = name_of_device(info.param.device) + "_" + std::string(c.op->type()) + "_" +
                     c.name + "_" + std::string(lockstep::name_of(c.inputs[0].dtype));
  return name;
}

class Ops : public testing::TestWithParam<Parameter> {};
void PrintTo(const Parameter& p, std::ostream* to) { *to << *p.test; }

TEST_P(Ops, ForwardMatchesTheReference) { check_forward(GetParam().device, *GetParam().test); }

TEST_P(Ops, GradientsMatchTheReference) { check_gradients(GetParam().device, *GetParam().test); }

TEST_P(Ops, SecondDerivativesMatchTheReference) {
  if (is_narrow(GetParam().test->inputs[0].dtype)) return;
  check_second_derivatives(GetParam().device, *GetParam().test);
}

TEST_P(Ops, GradientsOfTheReferenceMatchItsCentralDifferences) { check_reference(*GetParam().test); }

// Reports in every test run what could not be tested.
TEST(OpsInBf16, RunWhereTheProcessorHasInstructionsForIt) {
  const Tensor x = convert(Tensor::zeros({2, 3}, DType::f32), {{2, 3}, DType::bf16, nullptr});
  if (kernels::table_for({}).bf16) {
    EXPECT_EQ(ops::relu(x).dtype(), DType::bf16);
    EXPECT_THROW(ops::softmax(x), InvalidArgument);  // f32 only
    return;
  }
  EXPECT_THROW(ops::relu(x), Unsupported);
  GTEST_SKIP() << "no bf16 instructions: ops in bf16 were not run";
}

TEST(OpsOnGpus, RunWhereThereIsOne) {
  const auto reason = kernels::no_devices_reason();
  if (reason.text.empty()) return;
  const size_t tests = 2 * all_cases().size();
  std::printf("note: %zu tests of ops on a GPU were NOT run: %s\n", tests, reason.text.c_str());
  GTEST_SKIP() << tests << " tests of ops on a GPU were not run: " << reason.text;
}

INSTANTIATE_TEST_SUITE_P(All, Ops, testing::ValuesIn(parameters()), name_of_parameter);

}  // namespace
}  // namespace lockstep::optest
