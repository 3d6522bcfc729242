#include <cstdlib>
#include <vector>

#include "comm/rendezvous/join.h"
#include "comm/stream/stream_hub.h"
#include "tests/support/in_good_time.h"

// link_echo ADDRESS KEY: joins, and sends every message of tag 1 back with tag 2 until its coordinator has gone.

namespace ferry {
namespace {

int echo_all(int argc, char** argv) {
  if (argc != 3) return EXIT_FAILURE;
  const std::byte introduction{1};
  Joined joined = join(argv[1], argv[2], 1, {&introduction, 1}, test::in_good_time(), {}, kTestLimit);
  StreamHub hub;
  const auto link = hub.adopt(std::move(joined.socket), Rank{0});
  std::vector<std::byte> message(1 << 20);
  try {
    while (true) {
      const std::size_t bytes = link->wait(*link->irecv(message, 1, Fit::kUpTo), test::in_good_time());
      link->wait(*link->isend(std::span(message).first(bytes), 2), test::in_good_time());
    }
  } catch (const Error&) {
    return EXIT_SUCCESS;
  }
}

}  // namespace
}  // namespace ferry

int main(int argc, char** argv) { return ferry::echo_all(argc, argv); }
