// Objects that are written in parts, because they are too large for one request.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "lockstep/storage/object_store.h"
#include "lockstep/storage/requests.h"

namespace lockstep::storage {

// Whether an object of this size is written in parts: above 64 MB (four parts). LOCKSTEP_S3_PART_MB
// changes the size of a part (16). Throws InvalidArgument if that is not a valid number.
bool needs_parts(uint64_t size);

// Writes an object in parts, four at a time. The object exists, whole, after the last request, and
// never in part: if anything fails, the store is asked to discard the parts. Throws FileError, and
// what `contents` throws.
void write_in_parts(Requests& requests, const Address& address, uint64_t size,
                    const ObjectContents& contents);

// The ETag of an object of these contents, unless the store encrypts it: its MD5, or that of the
// MD5s of its parts and their number.
std::string etag_of(uint64_t size, const ObjectContents& contents);

}  // namespace lockstep::storage
