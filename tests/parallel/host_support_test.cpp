// Pools of a program that has not set what workers on other hosts need.
#include "lockstep/parallel/process/host_support.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/parallel/pool/pool.h"
#include "lockstep/parallel/pool/pool_core.h"

namespace lockstep {
namespace {

class WithoutHostSupport {
 public:
  WithoutHostSupport() { detail::set_host_support(nullptr); }
  ~WithoutHostSupport() { detail::set_host_support(&runtimes_); }

 private:
  const detail::HostSupport& runtimes_ = detail::host_support();
};

template <class Make>
std::string refusal_without_support(Make make) {
  try {
    make();
  } catch (const InvalidArgument& e) {
    return std::string(e.what()) + "; " + e.hint();
  }
  return "(nothing was thrown)";
}

TEST(HostSupport, IsNeededForHostsAndClusters) {
  const WithoutHostSupport without;
  const std::string refusal =
      "[pool] this program cannot have workers on other hosts; "
      "begin main() with: lockstep::Runtime runtime(argc, argv);";
  EXPECT_EQ(refusal_without_support([] {
              detail::make_process_pool(
                  {.workers = 1, .hosts = {{"one", 1}}, .launch = "env HOST={host}"});
            }),
            refusal);
  EXPECT_EQ(refusal_without_support([] { const Pool pool({.cluster = "local"}); }), refusal);
  Pool pool({.workers = 1});
  EXPECT_EQ(pool.submit([](int a, int b) { return a + b; }, 1, 2).get(), 3);
}

}  // namespace
}  // namespace lockstep
