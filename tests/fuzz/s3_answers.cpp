// What a store answers: listings, errors, checksums of contents; and what lends keys (STS).
#include "lockstep/base/error.h"
#include "lockstep/storage/answers.h"
#include "lockstep/storage/assumed_role.h"
#include "tests/fuzz/target.h"

namespace lockstep::fuzz {
namespace {

using storage::HttpAnswer;

// Headers up to an empty line, as in HTTP, then the body.
HttpAnswer answer_of(const std::string& text) {
  HttpAnswer answer;
  answer.status = 200;
  size_t at = 0;
  for (size_t end; (end = text.find('\n', at)) != std::string::npos && end > at; at = end + 1) {
    const std::string line = text.substr(at, end - at);
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) break;
    answer.headers.emplace_back(line.substr(0, colon), line.substr(colon + 2));
  }
  answer.body = text.substr(std::min(text.size(), at));
  return answer;
}

constexpr const char* kListing = R"(
<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name><Prefix>p/</Prefix>
<KeyCount>2</KeyCount><MaxKeys>1000</MaxKeys><IsTruncated>true</IsTruncated>
<NextContinuationToken>1/a+b=</NextContinuationToken>
<Contents><Key>p/a&amp;b.png</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>
<ETag>&quot;d41d8cd98f00b204e9800998ecf8427e&quot;</ETag><Size>434234</Size></Contents>
<Contents><Key>p/&#x63;.png</Key><ETag>"x-2"</ETag><Size>0</Size></Contents>
<CommonPrefixes><Prefix>p/q/</Prefix></CommonPrefixes></ListBucketResult>)";

constexpr const char* kError = R"(
<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>NoSuchKey</Code><Message>The key does not exist.</Message><RequestId>1</RequestId></Error>)";

constexpr const char* kLent = R"(
<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>
<AccessKeyId>ASIAIOSFODNN7EXAMPLE</AccessKeyId><SecretAccessKey>wJalr/XU</SecretAccessKey>
<SessionToken>AQoDYXdzEPT//////////wEXAMPLE=</SessionToken><Expiration>2026-11-27T06:05:23.5+01:00</Expiration>
</Credentials></AssumeRoleResult></AssumeRoleResponse>)";

}  // namespace

void parse(std::span<const std::byte> bytes) {
  HttpAnswer answer = answer_of(text_of(bytes));
  const bool whole = storage::damage_in_listing(answer).empty();
  storage::damage_by_checksum(answer);
  storage::damage_in_written(answer, std::string(16, 'x'));
  storage::parsed_time(storage::element(answer.body, "Expiration"));
  answer.status = 404;
  storage::code_of(answer);
  const std::string reason = storage::reason_of(answer);
  if (reason.size() > 1000) throw InternalError("[fuzz] a store writes long messages for it");
  for (const char* name :
       {"Code", "NextContinuationToken", "UploadId", "ETag", "AccessKeyId", "SessionToken"}) {
    storage::element(answer.body, name);
  }
  if (!whole) return;
  const storage::Listing listing = storage::parsed_listing(answer.body);
  for (const storage::ObjectInfo& object : listing.objects) storage::unquoted(object.etag);
}

std::vector<Bytes> seeds() {
  return {bytes_of(kListing),
          bytes_of(kError),
          bytes_of(kLent),
          bytes_of("etag: \"d41d8cd98f00b204e9800998ecf8427e\"\n\n"),
          bytes_of("x-amz-checksum-crc32c: yZRlqg==\netag: \"e\"\n\nhello world"),
          bytes_of("x-amz-checksum-sha256: uU0nuZNNPgilLlLX2n2r+sSE7+N6U4DukIj3rOLvzek=\n\n"
                   "hello world")};
}

}  // namespace lockstep::fuzz
