#include "lockstep/storage/object_store.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <unordered_set>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/storage/answers.h"
#include "lockstep/storage/content_type.h"
#include "lockstep/storage/multipart.h"
#include "lockstep/storage/network_wait.h"
#include "lockstep/storage/requests.h"
#include "lockstep/storage/signature.h"

namespace lockstep::storage {
namespace {

constexpr uint64_t large_object = uint64_t{16} << 20, range_bytes = uint64_t{8} << 20;

constexpr uint64_t most_listing_bytes = uint64_t{16} << 20;  // of one page
constexpr int most_empty_pages = 1000;                       // in a row

uint64_t memory_of_machine() {
  return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

// The keys of a listing, page by page, as far as they can be believed.
class ListedKeys {
 public:
  ListedKeys(const std::string& bucket, const std::string& prefix)
      : prefix_(prefix), what_(Address{bucket, prefix}.to_string()) {}

  const std::string& what() const { return what_; }
  size_t size() const { return found_.size(); }
  std::vector<ObjectInfo> take() { return std::move(found_); }

  // Throws FileError for keys, or an order of pages, that no listing of the prefix has, and
  // Cancelled after a stop request.
  void add(Listing& page, std::vector<std::string>* folders) {
    for (ObjectInfo& object : page.objects) {
      check_prefix(object.key);
      if (!is_new(object.key)) {
        throw wrong("the store lists the key " + printable(object.key) + " twice");
      }
      count(sizeof(ObjectInfo) + object.key.size() + object.etag.size());
      found_.push_back(std::move(object));
    }
    for (std::string& folder : page.folders) {
      check_prefix(folder);
      if (folders == nullptr || folder.size() <= prefix_.size() || !folder.ends_with('/')) {
        throw wrong("the store lists the folder " + printable(folder) +
                    ", which was not asked for");
      }
      count(sizeof(std::string) + folder.size());
      folders->push_back(std::move(folder));
    }
    empty_pages_ = page.objects.empty() && page.folders.empty() ? empty_pages_ + 1 : 0;
    if (page.next.empty()) return;
    if (empty_pages_ >= most_empty_pages) {
      throw wrong("the store keeps sending pages without keys");
    }
    if (!tokens_.insert(sha256_bytes(page.next)).second) {
      throw wrong("the store repeats its pages forever");
    }
    if (retries_stopped())
      throw Cancelled("[s3] cannot list " + printable(what_) + ": a stop was requested");
  }

 private:
  FileError wrong(const std::string& how) const {
    return FileError("[s3] cannot list " + printable(what_) + ": " + how);
  }

  void check_prefix(const std::string& key) const {
    if (key.starts_with(prefix_)) return;
    throw wrong("the store lists the key " + printable(key) + ", which does not begin with " +
                printable(prefix_));
  }

  // Keys are sorted in most stores. From the first one that is not, all are remembered.
  bool is_new(const std::string& key) {
    const bool sorted = keys_.empty() && (found_.empty() || found_.back().key < key);
    if (sorted) return true;
    if (keys_.empty()) {
      for (const ObjectInfo& object : found_) remember(object.key);
    }
    return remember(key);
  }
  bool remember(const std::string& key) {
    constexpr uint64_t bytes_of_a_node = 96;
    count(bytes_of_a_node);
    return keys_.insert(sha256_bytes(key)).second;
  }

  void count(uint64_t bytes) {
    bytes_ += bytes;
    if (bytes_ <= memory_of_machine() / 4) return;
    throw wrong("after " + std::to_string(found_.size()) +
                " keys the listing needs a quarter of this machine's memory");
  }

  const std::string prefix_, what_;
  std::vector<ObjectInfo> found_;
  std::unordered_set<std::string> keys_, tokens_;  // their digests
  uint64_t bytes_ = 0;
  int empty_pages_ = 0;
};

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
  if (!has_md5(answer)) return damage_by_checksum(answer);
  return hexadecimal(md5(answer.body)) == etag ? ""
                                               : "the bytes received do not fit the object's MD5";
}

// A request that writes an object. The store refuses other bytes by their MD5, and its answer is
// compared with what was sent.
Call writing_call(const Address& to, const std::string& bytes) {
  Call call{.method = "PUT", .bucket = to.bucket, .key = to.key, .body = bytes};
  const std::string digest = md5(bytes);
  call.headers.emplace_back("content-md5", base64(digest));
  call.headers.emplace_back("content-type", content_type_of(to.key));
  call.damage = [digest](const HttpAnswer& answer) { return damage_in_written(answer, digest); };
  return call;
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
  ListedKeys listed(bucket, prefix);
  std::string token;
  do {
    Call call{.bucket = bucket,
              .query = {{"list-type", "2"}, {"encoding-type", "url"}},
              .most_bytes = most_listing_bytes};
    call.query.emplace_back("max-keys", std::to_string(std::min(most, size_t{1000})));
    if (!prefix.empty()) call.query.emplace_back("prefix", prefix);
    if (folders != nullptr) call.query.emplace_back("delimiter", "/");
    if (!token.empty()) call.query.emplace_back("continuation-token", token);
    call.damage = [](const HttpAnswer& answer) { return damage_in_listing(answer); };
    const HttpAnswer answer = state_->requests.perform(call);
    if (answer.status != 200) refuse("list", listed.what(), answer);
    Listing page = parsed_listing(answer.body);
    listed.add(page, folders);
    token = std::move(page.next);
  } while (!token.empty() && listed.size() < most);
  return listed.take();
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
  std::vector<ReadObject> results(wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    const WantedObject& object = wanted[i].object;
    if (wanted[i].size >= memory_of_machine()) {  // a size that a store claims
      results[i].error =
          "it has " + std::to_string(wanted[i].size) + " bytes, more than this machine's memory";
      continue;
    }
    const uint64_t end = wanted[i].offset + wanted[i].size;
    const bool whole = wanted[i].size == object.size && object.size <= large_object;
    const uint64_t most = whole ? std::max<uint64_t>(object.size, 1) : range_bytes;
    for (uint64_t begin = wanted[i].offset; begin < end || (whole && begin == 0); begin += most) {
      const uint64_t size = std::min(most, end - begin);
      Call call{.bucket = bucket, .key = object.key, .most_bytes = size};
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
    HttpAnswer whole;
    whole.headers = {{"etag", object.etag}};
    if (ranges && results[i].error.empty() && has_md5(whole) &&
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
    Call call = writing_call({bucket, object.key}, object.bytes);
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
  Call call = writing_call(address, bytes);
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

}  // namespace lockstep::storage
