#include "lockstep/base/os/addresses.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

TEST(Addresses, TheLoopbackLeadsToItself) {
  EXPECT_EQ(address_towards("127.0.0.1"), "127.0.0.1");
  EXPECT_EQ(interface_of(address_towards("127.0.0.1")), "lo");
}

TEST(Addresses, WhoIsNowhereIsNamed) {
  EXPECT_THROW(address_towards("no.such.host.invalid"), Error);
  try {
    interface_of("192.0.2.1");
    FAIL() << "this machine has an address of the documentation's";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "[network] no interface of this machine has the address 192.0.2.1");
  }
}

}  // namespace
}  // namespace lockstep
