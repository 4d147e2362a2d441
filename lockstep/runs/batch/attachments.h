// Files that are attached to a batch job: copied into its folder at submission.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

class Attachments {
 public:
  // Copies files and folders into `folder`, which is made if there are any. Throws InvalidArgument
  // for those that do not exist, and for two of one name.
  Attachments(const std::vector<std::string>& paths, const std::string& folder);

  // A path with its beginning replaced if it is an attached file, or lies in an attached folder.
  std::string attached_path(const std::string& path) const;
  // The job (JSON) with the paths of its data replaced.
  std::string job_with_attached_paths(const std::string& job) const;

 private:
  struct Copy {
    std::string original, copy;  // absolute; the original without links
  };
  std::vector<Copy> copies_;
};

}  // namespace lockstep
