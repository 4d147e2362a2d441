// Objects of an S3 store: AWS, or another store that AWS_ENDPOINT_URL names.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::storage {

// An address "s3://bucket/key". The key may be empty.
struct Address {
  std::string bucket, key;

  std::string to_string() const { return "s3://" + bucket + "/" + key; }
};

inline bool is_address(std::string_view text) { return text.starts_with("s3://"); }
// Throws InvalidArgument if there is no valid bucket.
Address parsed_address(const std::string& text);

// An object as the store lists it.
struct ObjectInfo {
  std::string key;
  uint64_t size = 0;
  std::string etag;  // without quotes; changes with the contents
};

// An object to read. With `etag`, the object must still be this one.
struct WantedObject {
  std::string key;
  uint64_t size = 0;
  std::string etag = {};
};

// Consecutive bytes of an object.
struct WantedPart {
  WantedObject object;
  uint64_t offset = 0, size = 0;
};

struct NewObject {
  std::string key, bytes;
};

// Returns `size` bytes of the contents of a new object from `offset` on. May be called again.
using ObjectContents = std::function<std::string(uint64_t offset, uint64_t size)>;

// Contents, or why there are none.
struct ReadObject {
  std::string bytes = {};
  std::string error = {};  // "" if the bytes are complete and verified
};

// Requests are signed (Signature Version 4). They are repeated, with growing pauses, if the store
// does not answer, answers 5xx, cuts the connection or sends damaged bytes, for at most 60 seconds
// (LOCKSTEP_S3_RETRY_SECONDS). Sizes are verified, and MD5 where the ETag is one, else the
// checksum of a whole object where the store gives one. A bucket's region is learned from the
// store's answer; no redirect is followed. Expired keys are read again. A wrong local clock is
// corrected by the store's. Errors are FileError (DataError for a changed object, Cancelled after a
// stop request, see network_wait.h) and contain the address, never keys. Thread-safe.
class ObjectStore {
 public:
  ObjectStore();  // settings of the environment and the profile; throws InvalidArgument
  ~ObjectStore();

  // All objects whose keys begin with `prefix`, in the store's order; at most `most`, if given.
  // With `folders`, keys with a '/' after the prefix are left out, and what precedes the '/' is
  // added.
  std::vector<ObjectInfo> list(const std::string& bucket, const std::string& prefix,
                               size_t most = SIZE_MAX, std::vector<std::string>* folders = nullptr);
  // Nothing if there is no such object.
  std::optional<ObjectInfo> look_at(const Address& address);
  // Reads objects side by side. Objects above 16 MB are read in ranges of 8 MB.
  std::vector<ReadObject> read(const std::string& bucket, const std::vector<WantedObject>& wanted);
  // The same for parts of objects. MD5 is verified only where a part is its whole object.
  std::vector<ReadObject> read_parts(const std::string& bucket,
                                     const std::vector<WantedPart>& wanted);
  // Contents of one object, whatever they are at present.
  std::string read(const Address& address);
  // Writes one object; it has its old or its new contents at any time. Large objects are written in
  // parts (multipart.h).
  void write(const Address& address, const std::string& bytes);
  void write(const Address& address, uint64_t size, const ObjectContents& contents);
  // write() if the object is still the one with this ETag ("": if there is none). Returns whether
  // it was written. Stores that know no conditions write always.
  bool write_if(const Address& address, const std::string& bytes, const std::string& etag);
  // Writes objects side by side, each with one request. Throws for the first object that cannot be
  // written; others may be.
  void write(const std::string& bucket, const std::vector<NewObject>& objects);
  void copy(const Address& from, const Address& to);
  void remove(const Address& address);  // does nothing if there is no such object

  // What distinguishes this store from others, without keys, for names of cached contents.
  std::string identity() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The store of the process. Lives as long as the program.
ObjectStore& object_store();

}  // namespace lockstep::storage
