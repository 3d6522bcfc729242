#include "comm/rendezvous/join_wire.h"

#include <openssl/crypto.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <cstring>

#include "runtime/base/check.h"
#include "runtime/base/error.h"

namespace ferry {
namespace {

constexpr uint32_t kJoinMagic = 0x4e4a5246;  // "FRJN"
constexpr std::size_t kHelloProofAt = 48, kAnswerProofAt = 16;

using JoinProof = std::array<std::byte, 32>;
using JoinBytes = std::vector<std::byte>;

[[noreturn]] void refuse_message(const std::string& why) { throw Error(ErrorCode::kFailedPrecondition, why); }

template <class T>
void put(JoinBytes& bytes, std::size_t at, const T& value) {
  FERRY_CHECK_LE(at + sizeof(T), bytes.size());
  std::memcpy(bytes.data() + at, &value, sizeof(T));
}

/// A head with what follows it.
JoinBytes message_of(std::size_t head_bytes, std::span<const std::byte> rest) {
  JoinBytes bytes(head_bytes + rest.size());
  if (!rest.empty()) std::memcpy(bytes.data() + head_bytes, rest.data(), rest.size());
  put(bytes, 0, kJoinMagic);
  return bytes;
}

template <class T>
T value_at(std::span<const std::byte> bytes, std::size_t at) {
  T value;
  FERRY_CHECK_LE(at + sizeof(T), bytes.size());
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

JoinProof proof_of(const std::string& key, const JoinNonce& nonce, std::span<const std::byte> message, std::size_t proof_at) {
  JoinBytes proven(nonce.size() + message.size());
  std::memcpy(proven.data(), nonce.data(), nonce.size());
  std::memcpy(proven.data() + nonce.size(), message.data(), message.size());
  std::memset(proven.data() + nonce.size() + proof_at, 0, sizeof(JoinProof));
  JoinProof proof;
  unsigned int size = 0;
  const unsigned char* made =
      HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(proven.data()),
           proven.size(), reinterpret_cast<unsigned char*>(proof.data()), &size);
  FERRY_CHECK(made != nullptr && size == proof.size());
  return proof;
}

void sign(JoinBytes& message, std::size_t proof_at, const std::string& key, const JoinNonce& nonce) {
  const JoinProof proof = proof_of(key, nonce, message, proof_at);
  std::memcpy(message.data() + proof_at, proof.data(), proof.size());
}

bool is_signed(std::span<const std::byte> message, std::size_t proof_at, const std::string& key, const JoinNonce& nonce) {
  const JoinProof proof = proof_of(key, nonce, message, proof_at);
  return CRYPTO_memcmp(message.data() + proof_at, proof.data(), proof.size()) == 0;
}

void require_magic(std::span<const std::byte> bytes) {
  if (value_at<uint32_t>(bytes, 0) != kJoinMagic) refuse_message("who is there speaks another protocol");
}

void require_join_version(uint32_t version) {
  if (version != kJoinVersion)
    refuse_message("the other end joins by version " + std::to_string(version) + ", this one by " +
                   std::to_string(kJoinVersion));
}

std::size_t rest_at(std::span<const std::byte> head, std::size_t at) {
  const auto bytes = value_at<uint64_t>(head, at);
  if (bytes > kMaxJoinBytes)
    refuse_message("a message of " + std::to_string(bytes) + " bytes; allowed: at most " + std::to_string(kMaxJoinBytes));
  return bytes;
}

}  // namespace

JoinNonce make_nonce() {
  JoinNonce nonce;
  FERRY_CHECK_EQ(RAND_bytes(reinterpret_cast<unsigned char*>(nonce.data()), static_cast<int>(nonce.size())), 1);
  return nonce;
}

JoinBytes encode_challenge(const JoinNonce& nonce) {
  JoinBytes bytes = message_of(kChallengeBytes, {});
  put(bytes, 4, kJoinVersion);
  put(bytes, 8, nonce);
  return bytes;
}

JoinNonce decode_challenge(std::span<const std::byte> bytes) {
  FERRY_CHECK_EQ(bytes.size(), kChallengeBytes);
  require_magic(bytes);
  require_join_version(value_at<uint32_t>(bytes, 4));
  return value_at<JoinNonce>(bytes, 8);
}

JoinBytes encode_hello(const JoinHello& hello, const JoinNonce& challenge, const std::string& key) {
  JoinBytes bytes = message_of(kHelloHeadBytes, hello.introduction);
  put(bytes, 4, hello.version);
  put(bytes, 8, hello.incarnation);
  put(bytes, 16, hello.nonce);
  put(bytes, 80, static_cast<uint64_t>(hello.introduction.size()));
  sign(bytes, kHelloProofAt, key, challenge);
  return bytes;
}

std::size_t hello_rest(std::span<const std::byte> head) {
  require_magic(head);
  require_join_version(value_at<uint32_t>(head, 4));
  return rest_at(head, 80);
}

JoinHello decode_hello(std::span<const std::byte> bytes, const JoinNonce& challenge, const std::string& key) {
  FERRY_CHECK_EQ(bytes.size(), kHelloHeadBytes + hello_rest(bytes.first(kHelloHeadBytes)));
  if (!is_signed(bytes, kHelloProofAt, key, challenge))
    refuse_message(
        "the key is not the one that is asked for here; allowed: the coordinator's --join-key, or if it has none, a process of "
        "the same user on the same host");
  return {.version = value_at<uint32_t>(bytes, 4),
          .incarnation = value_at<uint64_t>(bytes, 8),
          .nonce = value_at<JoinNonce>(bytes, 16),
          .introduction = {bytes.begin() + kHelloHeadBytes, bytes.end()}};
}

JoinBytes encode_answer(const JoinAnswer& answer, const JoinNonce& hello_nonce, const std::string& key) {
  JoinBytes bytes = message_of(kAnswerHeadBytes, answer.bytes);
  put(bytes, 4, static_cast<uint32_t>(answer.is_refused ? 1 : 0));
  put(bytes, 8, static_cast<int32_t>(answer.member.value));
  put(bytes, 12, answer.epoch);
  put(bytes, 48, static_cast<uint64_t>(answer.bytes.size()));
  sign(bytes, kAnswerProofAt, key, hello_nonce);
  return bytes;
}

std::size_t answer_rest(std::span<const std::byte> head) {
  require_magic(head);
  return rest_at(head, 48);
}

/// A refusal counts whoever says it: without the key no more can be said.
JoinAnswer decode_answer(std::span<const std::byte> bytes, const JoinNonce& hello_nonce, const std::string& key) {
  FERRY_CHECK_EQ(bytes.size(), kAnswerHeadBytes + answer_rest(bytes.first(kAnswerHeadBytes)));
  const bool is_refused = value_at<uint32_t>(bytes, 4) != 0;
  if (!is_refused && !is_signed(bytes, kAnswerProofAt, key, hello_nonce))
    refuse_message("who answers there does not have the key");
  const auto member = value_at<int32_t>(bytes, 8);
  if (!is_refused && (member < 0 || member > kMaxMember))
    refuse_message("who answers there gives the place " + std::to_string(member) + "; allowed: 0 to " +
                   std::to_string(kMaxMember));
  return {.is_refused = is_refused,
          .member = Rank{member},
          .epoch = value_at<uint32_t>(bytes, 12),
          .bytes = {bytes.begin() + kAnswerHeadBytes, bytes.end()}};
}

}  // namespace ferry
