#include <algorithm>
#include <optional>
#include <vector>

#include "comm/rendezvous/join_wire.h"
#include "runtime/base/check.h"
#include "runtime/base/error.h"
#include "tests/fuzz/targets.h"

// What strangers say before a link begins, to who lets newcomers in and to a newcomer. A message is read as a socket's reader
// does it: the head, then as many bytes as it says.

namespace ferry::fuzz {
namespace {

using JoinBytes = std::vector<std::byte>;
using JoinInput = std::span<const std::byte>;

const std::string kJoinKey = "fuzz";

constexpr JoinNonce join_nonce() {
  JoinNonce nonce{};
  nonce.fill(std::byte{0x5a});
  return nonce;
}

/// The message that `bytes` begins with; nothing while some of it is missing.
std::optional<JoinInput> whole_message(JoinInput bytes, std::size_t head_bytes, std::size_t (*rest_of)(JoinInput)) {
  if (bytes.size() < head_bytes) return {};
  const std::size_t rest = rest_of(bytes.first(head_bytes));
  FERRY_CHECK_LE(rest, kMaxJoinBytes);
  if (bytes.size() - head_bytes < rest) return {};
  return bytes.first(head_bytes + rest);
}

std::optional<JoinHello> hello_in(JoinInput bytes) {
  const auto message = whole_message(bytes, kHelloHeadBytes, hello_rest);
  if (!message) return {};
  return decode_hello(*message, join_nonce(), kJoinKey);
}

std::optional<JoinAnswer> answer_in(JoinInput bytes) {
  const auto message = whole_message(bytes, kAnswerHeadBytes, answer_rest);
  if (!message) return {};
  return decode_answer(*message, join_nonce(), kJoinKey);
}

bool begins_with(JoinInput bytes, const JoinBytes& message) {
  return bytes.size() >= message.size() && std::ranges::equal(bytes.first(message.size()), message);
}

/// Whether `read` takes a message for what it says. A refusal of somebody without the key counts, but says nothing.
template <class Read>
bool is_believed(Read read, const JoinBytes& message) {
  try {
    const auto got = read(message);
    if constexpr (requires { got->is_refused; }) return got && !got->is_refused;
    return got.has_value();
  } catch (const Error&) {
    return false;
  }
}

void read_challenge(JoinInput bytes) {
  if (bytes.size() < kChallengeBytes) return;
  FERRY_CHECK(begins_with(bytes, encode_challenge(decode_challenge(bytes.first(kChallengeBytes)))));
}

void read_hello(JoinInput bytes) {
  const auto hello = hello_in(bytes);
  FERRY_CHECK(!hello || begins_with(bytes, encode_hello(*hello, join_nonce(), kJoinKey)));
}

void read_answer(JoinInput bytes) {
  const auto answer = answer_in(bytes);
  if (!answer || answer->is_refused) return;
  FERRY_CHECK(begins_with(bytes, encode_answer(*answer, join_nonce(), kJoinKey)));
}

}  // namespace

/// The first byte says which message the others are taken for.
void read_join_message(Input input) {
  if (input.empty()) return;
  const JoinInput bytes = std::as_bytes(input.subspan(1));
  switch (input.front() % 3) {
    case 0: return read_challenge(bytes);
    case 1: return read_hello(bytes);
    case 2: return read_answer(bytes);
  }
}

/// Messages of who has the key, with one byte changed on the way: where (u16) and how (u8); the rest is what they carry.
void forge_join(Input input) {
  if (input.size() < 3) return;
  const std::size_t at = input[0] + std::size_t{256} * input[1];
  const auto change = static_cast<std::byte>(input[2]);
  const auto carried = std::as_bytes(input.subspan(3));
  if (carried.size() > kMaxJoinBytes) return;
  JoinHello hello{.incarnation = input.size(), .nonce = join_nonce(), .introduction = {carried.begin(), carried.end()}};
  JoinBytes said = encode_hello(hello, join_nonce(), kJoinKey);
  JoinBytes answered = encode_answer({.member = Rank{3}, .epoch = 7, .bytes = hello.introduction}, join_nonce(), kJoinKey);
  FERRY_CHECK(is_believed(hello_in, said) && is_believed(answer_in, answered));
  if (change == std::byte{}) return;
  said[at % said.size()] ^= change;
  answered[at % answered.size()] ^= change;
  FERRY_CHECK(!is_believed(hello_in, said)) << " with byte " << at % said.size() << " changed";
  FERRY_CHECK(!is_believed(answer_in, answered)) << " with byte " << at % answered.size() << " changed";
}

}  // namespace ferry::fuzz
