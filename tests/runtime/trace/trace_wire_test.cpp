#include "runtime/trace/trace_wire.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "profiler/recorder.h"
#include "runtime/base/error.h"
#include "runtime/trace/trace_worker.h"

namespace ferry {
namespace {

template <class Message>
std::vector<std::byte> bytes_of(const Message& message, std::size_t extra = 0) {
  std::vector<std::byte> bytes(sizeof message + extra);
  std::memcpy(bytes.data(), &message, sizeof message);
  return bytes;
}

void expect_refusal(const std::string& what, const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << what;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInternal);
    EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
  }
}

TraceCommand command_of(TraceCommand::Op op) {
  TraceCommand command{.op = op, .number = 9};
  command.header.map_epoch = 1;
  return command;
}

TEST(TraceWire, ADamagedCommandIsRefused) {
  const std::vector<std::pair<const char*, std::function<void(TraceCommand&)>>> cases = {
      {"kind of a trace message 1", [](TraceCommand& c) { c.header.kind = WireKind::kRows; }},
      {"trace command 0", [](TraceCommand& c) { c.op = static_cast<TraceCommand::Op>(0); }},
      {"trace command 8", [](TraceCommand& c) { c.op = static_cast<TraceCommand::Op>(8); }},
      {"trace level 3", [](TraceCommand& c) { c.level = 3; }},
      {"memory for a trace -1", [](TraceCommand& c) { c.max_bytes = -1; }},
      {"memory for a trace", [](TraceCommand& c) { c.max_bytes = INT64_MAX; }},
      {"offset in a capture -1", [](TraceCommand& c) { c.offset = -1; }},
  };
  for (const auto& [what, damage] : cases) {
    TraceCommand command = command_of(TraceCommand::Op::kStart);
    damage(command);
    expect_refusal(what, [&] { parse_trace_command(bytes_of(command)); });
  }
  const std::vector<std::byte> whole = bytes_of(command_of(TraceCommand::Op::kStart), 1);
  for (std::size_t bytes = 0; bytes <= whole.size(); ++bytes) {
    if (bytes == sizeof(TraceCommand)) continue;
    EXPECT_THROW(parse_trace_command(std::span(whole).first(bytes)), Error) << bytes;
  }
}

TEST(TraceWire, AReplyToSomethingElseNamesTheRank) {
  const std::vector<std::pair<const char*, std::function<void(TraceReply&)>>> cases = {
      {"rank 2: message", [](TraceReply& r) { r.header.version = 9; }},
      {"kind of a trace message", [](TraceReply& r) { r.header.kind = WireKind::kReply; }},
      {"epoch of a trace reply 2", [](TraceReply& r) { r.header.map_epoch = 2; }},
      {"number of a trace reply 8", [](TraceReply& r) { r.number = 8; }},
      {"bytes of a capture -1", [](TraceReply& r) { r.num_bytes = -1; }},
      {"bytes of a capture 1048577", [](TraceReply& r) { r.num_bytes = kTracePieceBytes + 1; }},
      {"bytes of a trace reply", [](TraceReply& r) { r.num_bytes = 4; }},
      {"boot_id", [](TraceReply& r) { std::memset(r.boot_id, 'x', sizeof r.boot_id); }},
      {"complaint", [](TraceReply& r) { std::memset(r.complaint, 'x', sizeof r.complaint); }},
  };
  const TraceCommand command = command_of(TraceCommand::Op::kFetch);
  for (const auto& [what, damage] : cases) {
    TraceReply reply{.number = 9, .num_bytes = 3};
    reply.header.map_epoch = 1;
    damage(reply);
    expect_refusal(what, [&] { parse_trace_reply(bytes_of(reply, 3), command, Rank{2}); });
  }
  expect_refusal("rank 2: a message between ranks has 0 bytes", [&] { parse_trace_reply({}, command, Rank{2}); });
}

TEST(TraceWorker, AnswersACommandWithItsNumber) {
  TraceWorker worker(Rank{1}, 2, {});
  const TraceCommand command = command_of(TraceCommand::Op::kReadClock);
  const TraceReply reply = parse_trace_reply(worker.answer(bytes_of(command)), command, Rank{1});
  EXPECT_STREQ(reply.complaint, "");
  EXPECT_GT(reply.clock_ns, 0);
}

TEST(TraceWorker, AnswersACommandOfAnyEpoch) {
  TraceWorker worker(Rank{1}, 2, {});
  for (const uint32_t epoch : {7U, 1U}) {  // of placements that the worker has not gone over to yet, or any more
    TraceCommand command = command_of(TraceCommand::Op::kReadClock);
    command.header.map_epoch = epoch;
    EXPECT_EQ(parse_trace_reply(worker.answer(bytes_of(command)), command, Rank{1}).header.map_epoch, epoch);
  }
}

TEST(TraceWorker, SaysThatThereIsNoSuchPiece) {
  TraceWorker worker(Rank{1}, 2, {});
  TraceCommand command = command_of(TraceCommand::Op::kFetch);
  command.offset = 5;
  const TraceReply reply = parse_trace_reply(worker.answer(bytes_of(command)), command, Rank{1});
  EXPECT_STREQ(reply.complaint, "a piece of no capture was asked for");
  EXPECT_EQ(reply.num_bytes, 0);
  const std::vector<std::byte> whole = bytes_of(command);
  expect_refusal("at least", [&] { worker.answer(std::span(whole).first(40)); });
}

TEST(TraceWorker, DiscardsWhatItRecordsAndKeeps) {
  TraceWorker worker(Rank{1}, 2, {});
  const auto ask = [&](TraceCommand::Op op) {
    const TraceCommand command = command_of(op);
    return parse_trace_reply(worker.answer(bytes_of(command)), command, Rank{1});
  };
  EXPECT_STREQ(ask(TraceCommand::Op::kStart).complaint, "");
  EXPECT_STREQ(ask(TraceCommand::Op::kDiscard).complaint, "");
  EXPECT_FALSE(recorder().is_capturing());
  EXPECT_STREQ(ask(TraceCommand::Op::kStart).complaint, "");
  EXPECT_GT(ask(TraceCommand::Op::kStop).num_bytes, 0);
  const TraceReply discarded = ask(TraceCommand::Op::kDiscard);
  EXPECT_STREQ(discarded.complaint, "");
  EXPECT_EQ(discarded.num_bytes, 0);
  EXPECT_EQ(ask(TraceCommand::Op::kFetch).num_bytes, 0);
}

}  // namespace
}  // namespace ferry
