// Configuration files of the tools of AWS, which people edit by hand and copy from pages.
#include <cstdlib>

#include "lockstep/base/error.h"
#include "lockstep/storage/profiles.h"
#include "tests/fuzz/scratch.h"
#include "tests/fuzz/target.h"

namespace lockstep::fuzz {
namespace {

constexpr const char* kConfig = R"([default]
region = eu-central-1
# a comment
[profile training]
role_arn = arn:aws:iam::123456789012:role/training
source_profile = keys
duration_seconds=900
s3 =
    addressing_style = path
services = local
[profile keys]
aws_access_key_id = AKIAIOSFODNN7EXAMPLE
aws_secret_access_key = "wJalr/XU"
[services local]
s3 =
  endpoint_url = http://localhost:9000
[DEFAULT]
output = json
)";

}  // namespace

void parse(std::span<const std::byte> bytes) {
  static const Scratch folder;
  folder.write("config", bytes);
  ::setenv("AWS_CONFIG_FILE", join_path(folder.path(), "config").c_str(), 1);
  ::setenv("AWS_SHARED_CREDENTIALS_FILE", join_path(folder.path(), "none").c_str(), 1);
  for (const char* name : {"AWS_PROFILE", "AWS_DEFAULT_PROFILE"}) ::unsetenv(name);
  const storage::Profiles profiles;
  for (const std::string& name : profiles.names()) {
    const storage::Profile& profile = profiles.profile_of(name);
    for (const auto& [setting, unused] : profile.settings) {
      try {
        profile.setting(setting);
      } catch (const DataError&) {  // several lines
      }
    }
  }
  std::string from;
  const std::string endpoint = profiles.endpoint("s3", from);
  if (!endpoint.empty()) storage::parsed_endpoint(endpoint, from);
  storage::is_region(profiles.region());
}

std::vector<Bytes> seeds() { return {bytes_of(kConfig), bytes_of("\xef\xbb\xbf[default]\r\n")}; }

}  // namespace lockstep::fuzz
