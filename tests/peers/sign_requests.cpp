// Signs requests: one JSON object on each line of standard input, its authorization header on each
// line of standard output.

#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "lockstep/storage/signature.h"

int main() {
  using namespace lockstep::storage;
  for (std::string line; std::getline(std::cin, line);) {
    const auto json = nlohmann::json::parse(line);
    const SignedRequest request{json["method"],
                                json["host"],
                                json["path"],
                                json["query"].get<Pairs>(),
                                json["headers"].get<Pairs>(),
                                json["payload"]};
    const Credentials keys{json["access"], json["secret"], json["token"]};
    for (const auto& [name, value] :
         sign(request, keys, json["region"], "s3", json["time"].get<std::time_t>())) {
      if (name == "authorization") std::cout << value << "\n";
    }
  }
}
