#include "lockstep/base/cloud/object_store.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <ctime>

#include "lockstep/base/cloud/answers.h"
#include "lockstep/base/cloud/multipart.h"
#include "lockstep/base/cloud/requests.h"
#include "lockstep/base/error.h"

namespace lockstep::cloud {
namespace {

constexpr uint64_t large_object = uint64_t{16} << 20, range_bytes = uint64_t{8} << 20;

// Whether an ETag is the MD5 of the contents: not of objects in parts, nor of encrypted ones.
bool is_md5(const std::string& etag, const HttpAnswer& answer) {
  const std::string kind = answer.header("x-amz-server-side-encryption");
  const bool encrypted = kind.starts_with("aws:kms") ||
                         !answer.header("x-amz-server-side-encryption-customer-algorithm").empty();
  return !encrypted && etag.size() == 32 &&
         etag.find_first_not_of("0123456789abcdef") == std::string::npos;
}

// What is wrong with the bytes of a complete object or of one range of it; "" if nothing.
std::string damage_in(const HttpAnswer& answer, const WantedObject& wanted, uint64_t begin,
                      uint64_t size) {
  if (answer.status != 200 && answer.status != 206) return {};
  const std::string etag = unquoted(answer.header("etag"));
  if (!wanted.etag.empty() && !etag.empty() && etag != wanted.etag) return changed_object;
  if (answer.body.size() != size) {
    return "received " + std::to_string(answer.body.size()) + " bytes of " + std::to_string(size);
  }
  const bool whole = begin == 0 && size == wanted.size;
  if (!whole) return {};
  if (!is_md5(etag, answer)) return damage_by_checksum(answer);
  return hexadecimal(md5(answer.body)) == etag ? ""
                                               : "the bytes received do not fit the object's MD5";
}

}  // namespace

Address parsed_address(const std::string& text) {
  const std::string rest = text.substr(std::string_view("s3://").size());
  const size_t slash = std::min(rest.find('/'), rest.size());
  Address address{rest.substr(0, slash), slash < rest.size() ? rest.substr(slash + 1) : ""};
  const std::string& bucket = address.bucket;
  const auto fits = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '.' || c == '_';
  };
  if (bucket.size() < 3 || bucket.size() > 255 ||
      !std::all_of(bucket.begin(), bucket.end(), fits) || bucket.find("..") != std::string::npos) {
    throw InvalidArgument("[s3] `" + text + "` has no valid bucket",
                          "an address is s3://BUCKET/PREFIX");
  }
  return address;
}

struct ObjectStore::State {
  Requests requests;
};

ObjectStore::ObjectStore() : state_(std::make_unique<State>()) {}
ObjectStore::~ObjectStore() = default;

std::string ObjectStore::identity() const { return state_->requests.identity(); }

std::vector<ObjectInfo> ObjectStore::list(const std::string& bucket, const std::string& prefix,
                                          size_t most, std::vector<std::string>* folders) {
  std::vector<ObjectInfo> found;
  std::string token;
  const std::string what = Address{bucket, prefix}.to_string();
  do {
    Call call{.bucket = bucket, .query = {{"list-type", "2"}, {"encoding-type", "url"}}};
    call.query.emplace_back("max-keys", std::to_string(std::min(most, size_t{1000})));
    if (!prefix.empty()) call.query.emplace_back("prefix", prefix);
    if (folders != nullptr) call.query.emplace_back("delimiter", "/");
    if (!token.empty()) call.query.emplace_back("continuation-token", token);
    call.damage = [](const HttpAnswer& answer) { return damage_in_listing(answer); };
    const HttpAnswer answer = state_->requests.perform(call);
    if (answer.status != 200) refuse("list", what, answer);
    const Listing page = parsed_listing(answer.body);
    found.insert(found.end(), page.objects.begin(), page.objects.end());
    if (folders != nullptr)
      folders->insert(folders->end(), page.folders.begin(), page.folders.end());
    if (page.next == token && !token.empty()) {
      throw FileError("[s3] cannot list " + what + ": the store repeats one page for ever");
    }
    token = page.next;
  } while (!token.empty() && found.size() < most);
  return found;
}

std::optional<ObjectInfo> ObjectStore::look_at(const Address& address) {
  const HttpAnswer answer = state_->requests.perform(
      Call{.method = "HEAD", .bucket = address.bucket, .key = address.key});
  if (answer.status == 404) return {};
  if (answer.status != 200) refuse("look at", address.to_string(), answer);
  const std::string length = answer.header("content-length");
  ObjectInfo info{address.key, 0, unquoted(answer.header("etag"))};
  const auto end = std::from_chars(length.data(), length.data() + length.size(), info.size);
  if (length.empty() || end.ec != std::errc() || end.ptr != length.data() + length.size()) {
    throw FileError("[s3] cannot look at " + address.to_string() + ": the answer has no size");
  }
  return info;
}

std::vector<ReadObject> ObjectStore::read_parts(const std::string& bucket,
                                                const std::vector<WantedPart>& wanted) {
  std::vector<Call> calls;
  std::vector<size_t> owners;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const WantedObject& object = wanted[i].object;
    const uint64_t end = wanted[i].offset + wanted[i].size;
    const bool whole = wanted[i].size == object.size && object.size <= large_object;
    const uint64_t most = whole ? std::max<uint64_t>(object.size, 1) : range_bytes;
    for (uint64_t begin = wanted[i].offset; begin < end || (whole && begin == 0); begin += most) {
      const uint64_t size = std::min(most, end - begin);
      Call call{.bucket = bucket, .key = object.key};
      if (!whole) {
        call.headers.emplace_back(
            "range", "bytes=" + std::to_string(begin) + "-" + std::to_string(begin + size - 1));
      }
      if (whole) call.headers.emplace_back("x-amz-checksum-mode", "ENABLED");
      if (!object.etag.empty()) call.headers.emplace_back("if-match", '"' + object.etag + '"');
      call.damage = [object, begin, size](const HttpAnswer& answer) {
        return damage_in(answer, object, begin, size);
      };
      calls.push_back(std::move(call));
      owners.push_back(i);
    }
  }
  std::vector<HttpAnswer> answers = state_->requests.perform(calls);
  std::vector<ReadObject> results(wanted.size());
  for (size_t c = 0; c < calls.size(); ++c) {
    ReadObject& result = results[owners[c]];
    if (answers[c].status == 200 || answers[c].status == 206) {
      result.bytes += result.bytes.empty() ? std::move(answers[c].body) : answers[c].body;
    } else if (result.error.empty()) {
      result.error = reason_of(answers[c]);
    }
  }
  for (size_t i = 0; i < results.size(); ++i) {
    const WantedObject& object = wanted[i].object;
    const bool ranges = wanted[i].size == object.size && object.size > large_object;
    if (ranges && results[i].error.empty() && is_md5(object.etag, {}) &&
        hexadecimal(md5(results[i].bytes)) != object.etag) {
      results[i].error = "the bytes received do not fit the object's MD5";
    }
  }
  return results;
}

std::vector<ReadObject> ObjectStore::read(const std::string& bucket,
                                          const std::vector<WantedObject>& wanted) {
  std::vector<WantedPart> parts;
  for (const WantedObject& object : wanted) parts.push_back({object, 0, object.size});
  return read_parts(bucket, parts);
}

std::string ObjectStore::read(const Address& address) {
  std::string error;
  // The object may be replaced between the two requests.
  for (int attempt = 0; attempt < 3; ++attempt) {
    const std::optional<ObjectInfo> info = look_at(address);
    if (!info) {
      throw FileError("[s3] cannot read " + address.to_string() + ": there is no such object");
    }
    ReadObject object = read(address.bucket, {{address.key, info->size, info->etag}})[0];
    if (object.error.empty()) return std::move(object.bytes);
    error = object.error;
    if (error != changed_object) break;
  }
  throw FileError("[s3] cannot read " + address.to_string() + ": " + error);
}

void ObjectStore::write(const Address& address, const std::string& bytes) {
  write(address, bytes.size(),
        [&](uint64_t offset, uint64_t size) { return bytes.substr(offset, size); });
}

void ObjectStore::write(const Address& address, uint64_t size, const ObjectContents& contents) {
  if (needs_parts(size)) return write_in_parts(state_->requests, address, size, contents);
  write(address.bucket, {{address.key, contents(0, size)}});
}

void ObjectStore::write(const std::string& bucket, const std::vector<NewObject>& objects) {
  std::vector<Call> calls;
  for (const NewObject& object : objects) {
    Call call{.method = "PUT", .bucket = bucket, .key = object.key, .body = object.bytes};
    // The store refuses other bytes.
    call.headers.emplace_back("content-md5", base64(md5(object.bytes)));
    call.headers.emplace_back("x-amz-checksum-sha256", base64(sha256_bytes(object.bytes)));
    calls.push_back(std::move(call));
  }
  const std::vector<HttpAnswer> answers = state_->requests.perform(calls);
  for (size_t i = 0; i < calls.size(); ++i) {
    if (answers[i].status == 200) continue;
    refuse("write", Address{bucket, objects[i].key}.to_string(), answers[i]);
  }
}

bool ObjectStore::write_if(const Address& address, const std::string& bytes,
                           const std::string& etag) {
  Call call{.method = "PUT", .bucket = address.bucket, .key = address.key, .body = bytes};
  call.headers.emplace_back("content-md5", base64(md5(bytes)));
  if (etag.empty()) {
    call.headers.emplace_back("if-none-match", "*");
  } else {
    call.headers.emplace_back("if-match", '"' + etag + '"');
  }
  HttpAnswer answer = state_->requests.perform(call);
  if (answer.status == 412 && !etag.empty()) {
    // Ceph 16 compares the quotes, too.
    const std::optional<ObjectInfo> there = look_at(address);
    if (there && there->etag == etag) {
      call.headers.back().second = etag;
      answer = state_->requests.perform(call);
    }
  }
  if (answer.status == 200) return true;
  if (answer.status == 501) {
    write(address, bytes);
    return true;
  }
  if (answer.status != 409 && answer.status != 412) refuse("write", address.to_string(), answer);
  // The answer of an earlier attempt that succeeded may have been lost.
  const std::optional<ObjectInfo> there = look_at(address);
  return there && there->size == bytes.size() && read(address) == bytes;
}

void ObjectStore::copy(const Address& from, const Address& to) {
  Call call{.method = "PUT", .bucket = to.bucket, .key = to.key};
  call.headers.emplace_back("x-amz-copy-source",
                            "/" + percent_encoded(from.bucket + "/" + from.key, true));
  // A copy that fails late has the status 200.
  call.damage = [](const HttpAnswer& answer) {
    const bool failed = answer.status == 200 && answer.body.find("<Error>") != std::string::npos;
    return failed ? "the copy failed: " + reason_of(answer) : std::string();
  };
  const HttpAnswer answer = state_->requests.perform(call);
  if (answer.status != 200) {
    refuse("copy", from.to_string() + " to " + to.to_string(), answer);
  }
}

void ObjectStore::remove(const Address& address) {
  const HttpAnswer answer = state_->requests.perform(
      Call{.method = "DELETE", .bucket = address.bucket, .key = address.key});
  if (answer.status != 200 && answer.status != 204 && answer.status != 404) {
    refuse("remove", address.to_string(), answer);
  }
}

ObjectStore& object_store() {
  // Never destroyed: threads may still read while the program ends.
  static ObjectStore* const store = new ObjectStore;
  return *store;
}

}  // namespace lockstep::cloud
