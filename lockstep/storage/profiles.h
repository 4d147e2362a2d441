// Profiles of the tools of AWS: ~/.aws/config and ~/.aws/credentials, read as botocore reads them.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace lockstep::storage {

using ProfileSettings = std::map<std::string, std::string>;  // names in lower case

// A profile in both files. Where both have a setting, the credentials file's counts.
struct Profile {
  std::string name;
  ProfileSettings settings;  // of both files
  ProfileSettings in_credentials_file, in_config_file;

  // The value of a setting; "" if it is missing. Throws DataError for one of several lines.
  std::string setting(const std::string& setting) const;
};

// What both files contain. A value type; const functions are thread-safe.
class Profiles {
 public:
  // Reads the files that AWS_CONFIG_FILE and AWS_SHARED_CREDENTIALS_FILE name, else those in
  // ~/.aws. A missing file is empty. Throws DataError for a file that cannot be parsed, naming the
  // line, and InvalidArgument if AWS_DEFAULT_PROFILE or AWS_PROFILE names a profile that neither
  // file has.
  Profiles();

  // The profile in use: that of AWS_DEFAULT_PROFILE, else of AWS_PROFILE, else "default", which may
  // be missing from the files and is empty then.
  const Profile& used() const { return profile_of(used_); }
  // The variable that named it, or "".
  const std::string& named_by() const { return named_by_; }
  bool has(const std::string& name) const { return profiles_.contains(name); }
  // Empty if it is missing.
  const Profile& profile_of(const std::string& name) const;
  std::vector<std::string> names() const;
  // A file that a variable names and that does not exist, with the variable; or "".
  const std::string& missing_file() const { return missing_file_; }

  // AWS_REGION, AWS_DEFAULT_REGION, or the profile's `region`. "" if none is set.
  std::string region() const;
  // The address of a service ("s3", "sts") that replaces that of AWS: AWS_ENDPOINT_URL_<SERVICE>,
  // AWS_ENDPOINT_URL, `endpoint_url` of the service in the profile's `services`, the profile's
  // `endpoint_url`. "" if none is set, or AWS_IGNORE_CONFIGURED_ENDPOINT_URLS is true. `from`
  // receives the name of the setting.
  std::string endpoint(const std::string& service, std::string& from) const;

 private:
  std::map<std::string, Profile> profiles_;
  std::map<std::string, ProfileSettings> services_;
  std::string used_ = "default", named_by_, missing_file_;
};

// Whether a text may be a region: it becomes part of a host's name.
bool is_region(const std::string& text);

// An address of a service: "https" and "host:port", without the scheme's own port. Throws
// InvalidArgument, naming `from`, for anything else (a path, keys).
struct Endpoint {
  std::string scheme = "https", host;
  std::string url() const { return scheme + "://" + host; }
};
Endpoint parsed_endpoint(const std::string& url, const std::string& from);

// That of AWS itself: https://SERVICE.REGION.amazonaws.com.
Endpoint aws_endpoint(const std::string& service, const std::string& region);

}  // namespace lockstep::storage
