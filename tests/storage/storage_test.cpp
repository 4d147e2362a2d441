#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/storage/answers.h"
#include "lockstep/storage/network_wait.h"
#include "lockstep/storage/object_store.h"
#include "lockstep/storage/signature.h"

namespace lockstep::storage {
namespace {

TEST(Storage, AddressesHaveBucketAndKey) {
  const Address address = parsed_address("s3://my.bucket-1/a b/../c=d");
  EXPECT_EQ(address.bucket, "my.bucket-1");
  EXPECT_EQ(address.key, "a b/../c=d");
  EXPECT_EQ(parsed_address("s3://bucket").key, "");
  EXPECT_EQ(address.to_string(), "s3://my.bucket-1/a b/../c=d");
  for (const char* const text : {"s3://", "s3://a/b", "s3:///b", "s3://a..b/c", "s3://a@b.c/d"}) {
    EXPECT_THROW(parsed_address(text), InvalidArgument) << text;
  }
}

TEST(Storage, EncodingIsReversible) {
  std::string all;
  for (int c = 0; c < 256; ++c) all += static_cast<char>(c);
  EXPECT_EQ(percent_decoded(percent_encoded(all, false)), all);
  EXPECT_EQ(percent_encoded("a/b c", true), "a/b%20c");
  EXPECT_EQ(percent_encoded("a/b+", false), "a%2Fb%2B");
  EXPECT_EQ(percent_decoded("%zz%4"), "%zz%4");
  EXPECT_EQ(encoded_query({{"b", "2 +"}, {"a", ""}}), "a=&b=2%20%2B");
}

// The example of a request in the documentation of AWS ("Authenticating Requests: Using the
// Authorization Header", GET Object).
TEST(Storage, SignsTheDocumentedExample) {
  const std::string empty = sha256("");
  const Pairs headers = sign({.method = "GET",
                              .host = "examplebucket.s3.amazonaws.com",
                              .path = "/test.txt",
                              .headers = {{"range", "bytes=0-9"}},
                              .payload_digest = empty},
                             {"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"},
                             "us-east-1", "s3", 1369353600);
  EXPECT_EQ(headers.back().second,
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, "
            "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, "
            "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
}

TEST(Storage, ListingsAreReadOrRefused) {
  const Listing listing = parsed_listing(
      "<ListBucketResult><EncodingType>url</EncodingType><Contents><Key>a%2Bb+c</Key>"
      "<ETag>&quot;e&quot;</ETag><Size>7</Size></Contents><CommonPrefixes><Prefix>x/</Prefix>"
      "</CommonPrefixes><IsTruncated>true</IsTruncated>"
      "<NextContinuationToken>n&amp;m</NextContinuationToken></ListBucketResult>");
  ASSERT_EQ(listing.objects.size(), 1u);
  EXPECT_EQ(listing.objects[0].key, "a+b c");
  EXPECT_EQ(listing.objects[0].etag, "e");
  EXPECT_EQ(listing.objects[0].size, 7u);
  EXPECT_EQ(listing.folders, std::vector<std::string>{"x/"});
  EXPECT_EQ(listing.next, "n&m");
  EXPECT_EQ(parsed_listing("<Contents><Key>a+b&#65;</Key><Size>1</Size></Contents>").objects[0].key,
            "a+bA");
  EXPECT_THROW(parsed_listing("<Contents><Key>a</Key></Contents>"), FileError);
  EXPECT_THROW(parsed_listing("<IsTruncated>true</IsTruncated>"), FileError);
  HttpAnswer answer;
  answer.status = 200;
  answer.body = "<ListBucketResult><Contents>";
  EXPECT_NE(damage_in_listing(answer), "");
}

TEST(Storage, ChecksumsOfAnswersAreCompared) {
  HttpAnswer answer;
  answer.body = "123456789";
  // The check values of the catalog of parametrised CRC algorithms.
  for (const auto& [name, right] :
       {std::pair{"x-amz-checksum-crc32", "\xcb\xf4\x39\x26"},
        std::pair{"x-amz-checksum-crc32c", "\xe3\x06\x92\x83"},
        std::pair{"x-amz-checksum-crc64nvme", "\xae\x8b\x14\x86\x0a\x79\x98\x88"}}) {
    answer.headers = {{name, base64(right)}};
    EXPECT_EQ(damage_by_checksum(answer), "") << name;
    answer.body[8] = '0';
    EXPECT_NE(damage_by_checksum(answer), "") << name;
    answer.body[8] = '9';
  }
}

TEST(Storage, AStopRequestIsKnownAsLongAsItsOwnerExists) {
  EXPECT_FALSE(retries_stopped());
  bool stop = false;
  {
    const StopRetries mine([&] { return stop; });
    const StopRetries other([] { return false; });
    EXPECT_FALSE(retries_stopped());
    stop = true;
    EXPECT_TRUE(retries_stopped());
  }
  EXPECT_FALSE(retries_stopped());
}

TEST(Storage, WaitsOfSeveralThreadsCountOnce) {
  const double before = seconds_waited();
  std::atomic<int64_t> counter = 0;
  count_network_waits(&counter);
  {
    const NetworkWait first;
    NetworkWait second;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    second.goes_on();
    EXPECT_GE(seconds_waited() - before, 0.049);  // also before it ends
  }
  count_network_waits(nullptr);
  EXPECT_EQ(counter, 3);
  const double waited = seconds_waited();
  EXPECT_GE(waited - before, 0.049);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(seconds_waited(), waited);
}

TEST(Storage, ReasonsContainOnlyTheStoresCode) {
  HttpAnswer answer;
  answer.status = 403;
  answer.body = "<Error><Code>AccessDenied</Code><Message>secret</Message></Error>";
  EXPECT_EQ(reason_of(answer), "access is denied (AccessDenied, status 403)");
  answer.body = "<Error><Code>a secret!</Code></Error>";
  EXPECT_EQ(reason_of(answer), "access is denied (status 403)");
}

}  // namespace
}  // namespace lockstep::storage
