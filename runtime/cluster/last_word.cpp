#include "runtime/cluster/last_word.h"

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/base/error.h"

namespace ferry {
namespace {

constexpr std::chrono::seconds kLastWordTime{1};  // for a few bytes to leave

}  // namespace

void say_last_word(LinkHub& hub, std::span<Link* const> coordinators) {
  for (Link* const link : coordinators) {
    try {
      const std::unique_ptr<PendingOp> send = link->isend({}, kLastWordTag);
      link->wait(*send, hub.now() + kLastWordTime);
    } catch (const Error&) {  // it has gone
    }
  }
}

void hear_last_words(std::span<Link* const> workers, Deadline deadline) {
  std::vector<std::pair<Link*, std::unique_ptr<PendingOp>>> words;
  for (Link* const link : workers) {
    try {
      words.emplace_back(link, link->irecv({}, kLastWordTag, Fit::kExact));
    } catch (const Error&) {  // it has gone
    }
  }
  for (const auto& [link, word] : words) {
    try {
      link->wait(*word, deadline);
    } catch (const Error&) {  // likewise, or it is late
    }
  }
}

}  // namespace ferry
