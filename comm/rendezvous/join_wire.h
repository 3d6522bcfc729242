#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/types.h"

// What a newcomer and a Rendezvous say to each other before the link begins, all little-endian:
//
//   challenge  Rendezvous -> newcomer   magic u32 | version u32 | nonce [32]
//   hello      newcomer -> Rendezvous   magic u32 | version u32 | incarnation u64 | nonce [32] | proof [32] | bytes u64 |
//                                       introduction
//   answer     Rendezvous -> newcomer   magic u32 | is_refused u32 | member i32 | epoch u32 | proof [32] | bytes u64 |
//                                       instructions, or the reason
//
// A proof is HMAC-SHA256 under the key of the other's nonce and all of the message but the proof, so that neither the key nor
// anything that could be said again travels. Without a key it is the same under the empty one.

namespace ferry {

constexpr uint32_t kJoinVersion = 1;
constexpr std::size_t kMaxJoinBytes = std::size_t{64} << 10;  // of an introduction, of instructions
constexpr int32_t kMaxMember = 65535;                         // the last place that a rendezvous can give

using JoinNonce = std::array<std::byte, 32>;

/// Random bytes that nobody can guess.
JoinNonce make_nonce();

struct JoinHello {
  uint32_t version = kJoinVersion;
  uint64_t incarnation = 0;
  JoinNonce nonce{};
  std::vector<std::byte> introduction;
};

struct JoinAnswer {
  bool is_refused = false;
  Rank member;
  uint32_t epoch = 0;
  std::vector<std::byte> bytes;  // instructions, or the reason as text
};

constexpr std::size_t kChallengeBytes = 40;
constexpr std::size_t kHelloHeadBytes = 88;
constexpr std::size_t kAnswerHeadBytes = 56;

std::vector<std::byte> encode_challenge(const JoinNonce& nonce);
std::vector<std::byte> encode_hello(const JoinHello& hello, const JoinNonce& challenge, const std::string& key);
std::vector<std::byte> encode_answer(const JoinAnswer& answer, const JoinNonce& hello_nonce, const std::string& key);

// All that follow throw Error{kFailedPrecondition} for what is no such message.
JoinNonce decode_challenge(std::span<const std::byte> bytes);
/// How many bytes follow the head, at most kMaxJoinBytes.
std::size_t hello_rest(std::span<const std::byte> head);
std::size_t answer_rest(std::span<const std::byte> head);
/// Of the whole message; also for a proof that is wrong.
JoinHello decode_hello(std::span<const std::byte> bytes, const JoinNonce& challenge, const std::string& key);
JoinAnswer decode_answer(std::span<const std::byte> bytes, const JoinNonce& hello_nonce, const std::string& key);

}  // namespace ferry
