#include "lockstep/base/numeric/dtype.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

TEST(Device, IsWrittenAndReadAsText) {
  const Device second{Device::Kind::cuda, 1};
  EXPECT_EQ(to_string(Device{}), "cpu");
  EXPECT_EQ(to_string(second), "cuda:1");
  EXPECT_EQ(parse_device("cpu"), Device{});
  EXPECT_EQ(parse_device("cuda"), (Device{Device::Kind::cuda, 0}));
  EXPECT_EQ(parse_device("cuda:1"), second);
  EXPECT_EQ(parse_device(to_string({Device::Kind::cuda, 12})).index, 12);
}

TEST(Device, OtherTextIsRefused) {
  for (const char* text : {"", "gpu", "CPU", "cpu:0", "cuda:", "cuda:-1", "cuda:x", "cuda:1x",
                           "cuda: 1", "cuda:99999999999", "cudas"}) {
    try {
      parse_device(text);
      ADD_FAILURE() << "accepted `" << text << "`";
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(error.what(), "[device] `" + std::string(text) + "` is not a device");
      EXPECT_EQ(error.hint(), "cpu, cuda (the first GPU) or cuda:1 (the second)");
    }
  }
}

}  // namespace
}  // namespace lockstep
