#include "lockstep/storage/multipart.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/storage/answers.h"
#include "lockstep/storage/content_type.h"
#include "lockstep/storage/signature.h"

namespace lockstep::storage {
namespace {

constexpr uint64_t megabyte = uint64_t{1} << 20;
constexpr uint64_t most_parts = 10000;  // of an object
constexpr uint64_t parts_at_once = 4;

uint64_t usual_part() {
  static const uint64_t bytes = [] {
    const char* const text = std::getenv("LOCKSTEP_S3_PART_MB");
    if (text == nullptr || *text == '\0') return 16 * megabyte;
    char* end = nullptr;
    const long value = std::strtol(text, &end, 10);
    if (*end != '\0' || value < 1 || value > 1024) {
      throw InvalidArgument("[s3] LOCKSTEP_S3_PART_MB is `" + std::string(text) +
                            "`, but must be between 1 and 1024");
    }
    return static_cast<uint64_t>(value) * megabyte;
  }();
  return bytes;
}

uint64_t part_size(uint64_t size) {
  const uint64_t least = (size + most_parts - 1) / most_parts;
  return std::max(usual_part(), (least + megabyte - 1) / megabyte * megabyte);
}

// The MD5 of all parts' MD5s, as stores report it.
std::string joined_etag(const std::vector<std::string>& digests) {
  std::string all;
  for (const std::string& digest : digests) all += digest;
  return hexadecimal(md5(all)) + "-" + std::to_string(digests.size());
}

struct Upload {
  Requests& requests;
  const Address& address;
  std::string id = {};
  std::vector<std::string> digests = {};  // MD5s of the written parts
  std::vector<std::string> etags = {};    // as the store reported them
  bool plain = true;                      // all of them are MD5s

  [[noreturn]] void refused(const HttpAnswer& answer) const {
    refuse("write", address.to_string(), answer);
  }

  void begin() {
    Call call{
        .method = "POST", .bucket = address.bucket, .key = address.key, .query = {{"uploads", ""}}};
    call.headers.emplace_back("content-type", content_type_of(address.key));
    call.damage = [](const HttpAnswer& answer) {
      const bool without = answer.status == 200 && element(answer.body, "UploadId").empty();
      return without ? "the answer has no upload's name" : "";
    };
    const HttpAnswer answer = requests.perform(call);
    if (answer.status != 200) refused(answer);
    id = element(answer.body, "UploadId");
  }

  // The next parts, side by side.
  void write(std::vector<std::string> parts) {
    std::vector<Call> calls;
    for (std::string& part : parts) {
      digests.push_back(md5(part));
      Call call{.method = "PUT", .bucket = address.bucket, .key = address.key};
      call.query = {{"partNumber", std::to_string(digests.size())}, {"uploadId", id}};
      call.headers.emplace_back("content-md5", base64(digests.back()));
      call.headers.emplace_back("content-type", unknown_content);
      call.damage = [digest = digests.back()](const HttpAnswer& answer) {
        const bool without = answer.status == 200 && answer.header("etag").empty();
        return without ? "the answer has no ETag" : damage_in_written(answer, digest);
      };
      call.body = std::move(part);
      calls.push_back(std::move(call));
    }
    for (const HttpAnswer& answer : requests.perform(calls)) {
      if (answer.status != 200) refused(answer);
      plain = plain && has_md5(answer);
      etags.push_back(unquoted(answer.header("etag")));
    }
  }

  void complete() {
    std::string body = "<CompleteMultipartUpload>";
    for (size_t i = 0; i < etags.size(); ++i) {
      body += "<Part><PartNumber>" + std::to_string(i + 1) + "</PartNumber><ETag>\"" + etags[i] +
              "\"</ETag></Part>";
    }
    body += "</CompleteMultipartUpload>";
    Call call{.method = "POST",
              .bucket = address.bucket,
              .key = address.key,
              .query = {{"uploadId", id}},
              .body = std::move(body)};
    // A completion that fails late has the status 200.
    call.damage = [](const HttpAnswer& answer) {
      const bool failed = answer.status == 200 && answer.body.find("<Error>") != std::string::npos;
      return failed ? "the parts could not be joined: " + reason_of(answer) : std::string();
    };
    call.headers.emplace_back("content-type", "application/xml");
    const HttpAnswer answer = requests.perform(call);
    if (answer.status == 200) return check(unquoted(element(answer.body, "ETag")));
    // The answer of an earlier attempt that succeeded may have been lost.
    if (answer.status != 404 || !is_there()) refused(answer);
  }

  // Compares the ETag of the whole object, if the store told one of this form.
  void check(const std::string& etag) const {
    const std::string right = joined_etag(digests);
    if (!plain || etag.size() != right.size() || etag.substr(32) != right.substr(32) ||
        etag == right) {
      return;
    }
    throw FileError("[s3] cannot write " + address.to_string() + ": the store's ETag (" + etag +
                    ") is not that of the parts that were sent (" + right + ")");
  }

  bool is_there() const {
    const HttpAnswer answer =
        requests.perform(Call{.method = "HEAD", .bucket = address.bucket, .key = address.key});
    return answer.status == 200 && unquoted(answer.header("etag")) == joined_etag(digests);
  }

  void discard() const {
    requests.perform(Call{.method = "DELETE",
                          .bucket = address.bucket,
                          .key = address.key,
                          .query = {{"uploadId", id}}});
  }
};

}  // namespace

bool needs_parts(uint64_t size) { return size > parts_at_once * usual_part(); }

void write_in_parts(Requests& requests, const Address& address, uint64_t size,
                    const ObjectContents& contents) {
  Upload upload{requests, address};
  upload.begin();
  try {
    const uint64_t each = part_size(size);
    std::vector<std::string> parts;
    for (uint64_t at = 0; at < size; at += each) {
      parts.push_back(contents(at, std::min(each, size - at)));
      if (parts.size() < parts_at_once && at + each < size) continue;
      upload.write(std::move(parts));
      parts.clear();
    }
    upload.complete();
  } catch (...) {
    try {
      upload.discard();
    } catch (const std::exception&) {  // the first error is the cause
    }
    throw;
  }
}

std::string etag_of(uint64_t size, const ObjectContents& contents) {
  if (!needs_parts(size)) return hexadecimal(md5(contents(0, size)));
  const uint64_t each = part_size(size);
  std::vector<std::string> digests;
  for (uint64_t at = 0; at < size; at += each) {
    digests.push_back(md5(contents(at, std::min(each, size - at))));
  }
  return joined_etag(digests);
}

}  // namespace lockstep::storage
