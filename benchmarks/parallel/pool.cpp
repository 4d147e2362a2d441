// The overhead of a process pool for a task: the time of an empty task from submit() to get(),
// compared in turns with the round trip of a message between two processes over a bare encrypted
// ZeroMQ socket (CURVE). Also the number of empty tasks that one client completes in a second.
// Medians of the rounds.
//
// usage: pool [--workers N] [--rounds N]
#include "lockstep/parallel/pool/pool.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <string>
#include <vector>
#include <zmq.hpp>

#include "lockstep/base/error.h"
#include "lockstep/cluster/runtime.h"

namespace {

using namespace lockstep;

constexpr int kTrips = 1000, kTasks = 20000;

double seconds_of(const std::function<void()>& work) {
  const auto before = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// A process that sends every message back.
class Echo {
 public:
  Echo() {
    std::array<char, 41> public_key{}, secret_key{};
    zmq_curve_keypair(server_key_.data(), server_secret_.data());
    zmq_curve_keypair(public_key.data(), secret_key.data());
    endpoint_ = "ipc://@lockstep-benchmark-" + std::to_string(getpid());
    child_ = fork();
    if (child_ < 0) throw Error("[pool benchmark] no process could be started");
    if (child_ == 0) serve();
    socket_.set(zmq::sockopt::curve_serverkey, std::string(server_key_.data()));
    socket_.set(zmq::sockopt::curve_publickey, std::string(public_key.data()));
    socket_.set(zmq::sockopt::curve_secretkey, std::string(secret_key.data()));
    socket_.set(zmq::sockopt::linger, 0);
    socket_.set(zmq::sockopt::rcvtimeo, 10000);
    socket_.connect(endpoint_);
  }
  ~Echo() {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }

  void trip() {
    zmq::message_t back;
    socket_.send(zmq::str_buffer("an empty task and its number"), zmq::send_flags::none);
    if (!socket_.recv(back)) throw Timeout("[pool benchmark] no answer");
  }

 private:
  [[noreturn]] void serve() {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    zmq::context_t context(1);
    zmq::socket_t socket(context, ZMQ_PAIR);
    socket.set(zmq::sockopt::curve_server, 1);
    socket.set(zmq::sockopt::curve_secretkey, std::string(server_secret_.data()));
    socket.bind(endpoint_);
    for (;;) {
      zmq::message_t message;
      if (socket.recv(message)) socket.send(message, zmq::send_flags::none);
    }
  }

  std::array<char, 41> server_key_{}, server_secret_{};
  std::string endpoint_;
  pid_t child_ = -1;
  zmq::context_t context_{1};  // its threads start with the first socket
  zmq::socket_t socket_{context_, ZMQ_PAIR};
};

}  // namespace

int main(int argc, char** argv) {
  const Runtime runtime(argc, argv);
  try {
    int workers = 1, rounds = 5;
    for (int i = 1; i + 1 < argc; i += 2) {
      const std::string name = argv[i];
      const int value = std::atoi(argv[i + 1]);
      if (value < 1)
        throw InvalidArgument("[pool benchmark] " + name + " needs a number from 1 on");
      (name == "--workers" ? workers : rounds) = value;
    }
    Echo echo;
    Pool pool({.workers = workers});
    const auto empty = [] {};
    for (int i = 0; i < 200; ++i) {
      echo.trip();
      pool.submit(empty).get();
    }
    std::vector<double> bare, task, rate;
    for (int r = 0; r < rounds; ++r) {
      std::vector<double> trips;
      for (int i = 0; i < kTrips; ++i) trips.push_back(seconds_of([&] { echo.trip(); }));
      bare.push_back(median(trips));
      trips.clear();
      for (int i = 0; i < kTrips; ++i)
        trips.push_back(seconds_of([&] { pool.submit(empty).get(); }));
      task.push_back(median(trips));
      rate.push_back(kTasks / seconds_of([&] {
                       std::vector<Future<void>> futures;
                       for (int i = 0; i < kTasks; ++i) futures.push_back(pool.submit(empty));
                       fetch_all(futures);
                     }));
    }
    std::printf("encrypted message, there and back  %8.1f us\n", median(bare) * 1e6);
    std::printf("empty task                         %8.1f us\n", median(task) * 1e6);
    std::printf("ratio                              %8.2f\n", median(task) / median(bare));
    std::printf("empty tasks of one client          %8.0f a second\n", median(rate));
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "pool: %s\n", e.what());
    return 1;
  }
}
