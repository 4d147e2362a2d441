// Verdicts of self-tests in the user's own folder, one file for each GPU, driver, version of the
// libraries and build.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/engine/kernels/backends/verdict.h"

namespace lockstep::kernels {

// What a verdict is valid for.
struct VerdictKey {
  std::string uuid;  // of the GPU
  std::string name;  // of its model
  // Driver, libraries and build, with their versions, and the version of the self-test.
  std::vector<std::pair<std::string, std::string>> versions;

  Digest digest() const;
};

// The folder, which need not exist: "devices" among the user's state (base/os/user_folder.h).
// Throws InvalidArgument if no variable names a folder.
std::string verdict_folder();
// The file's path: the GPU's name and the digest of the key.
std::string verdict_path(const std::string& folder, const VerdictKey& key);

struct StoredVerdict {
  std::optional<Verdict> verdict;
  std::string problem;  // why a file that exists is ignored; ""
};
// Reads the verdict for a key. A file is ignored if it belongs to another user, if others may read
// or write it, if it is not a regular file, or if its content is damaged or is for another key.
StoredVerdict read_verdict(const std::string& folder, const VerdictKey& key);
// Writes it (mode 0600, by renaming). Makes the folder (0700). Throws FileError.
void write_verdict(const std::string& folder, const VerdictKey& key, const Verdict& verdict);

// The verdict as JSON: kernels with states and what was seen, reason, digest, seconds.
std::string verdict_json(const Verdict& verdict);

}  // namespace lockstep::kernels
